CREATE OR REPLACE VIEW run_list AS
SELECT run, name, model, host, simulated, coalesce(outcome, 'running') AS state, started_at, last_seen_at, ended_at,
    epoch(coalesce(ended_at, last_seen_at)) - epoch(started_at) AS seconds,
    rows_total, rows_done, rows_failed, attempts, completion_tokens,
    completion_tokens / nullif(epoch(coalesce(ended_at, last_seen_at)) - epoch(started_at), 0) AS tokens_per_s,
    energy_j / nullif(gpu_seconds, 0) AS power_w,
    energy_j / nullif(completion_tokens, 0) AS joules_per_token,
    accepted_sum / nullif(accepted_weight, 0) AS acceptance_length,
    energy_j / 3.6e6 AS energy_kwh,
    genmon, sglang, git_revision, job_directory, reason
FROM runs;
COMMENT ON VIEW run_list IS 'One row a run: tokens/s and J/token over kept tokens and the whole run; power_w is the mean of one GPU, watts';

CREATE OR REPLACE MACRO t975(df) AS
    1.959964 + 2.37227 / df + 2.82250 / (df * df) + 2.55585 / (df * df * df);
COMMENT ON MACRO t975 IS '97.5 % quantile of Student''s t, within 1 % from df = 3 on (Cornish-Fisher)';

CREATE OR REPLACE VIEW blocks AS
WITH servers AS (
    SELECT run, launch, time_bucket(INTERVAL 10 SECONDS, taken_at) AS began_at, sum(tokens) AS tokens,
        sum(seconds) AS seconds, avg(in_flight) AS in_flight,
        sum(acceptance_length * tokens) / nullif(sum(tokens) FILTER (acceptance_length IS NOT NULL), 0)
            AS acceptance_length
    FROM server_samples GROUP BY ALL
    HAVING bool_and(phase = 'ready') AND min(in_flight) > 0 AND sum(seconds) >= 5
), gpus AS (
    SELECT run, launch, time_bucket(INTERVAL 10 SECONDS, taken_at) AS began_at, sum(energy_j) AS energy_j,
        sum(seconds) FILTER (energy_j IS NOT NULL) AS gpu_seconds, avg(power_w) AS power_w
    FROM gpu_samples WHERE launch IS NOT NULL GROUP BY ALL
)
SELECT run, launch, flag_set, began_at, tokens / seconds AS tokens_per_s,
    coalesce(energy_j / nullif(gpu_seconds, 0), gpus.power_w) AS power_w,
    energy_j / nullif(gpu_seconds, 0) * seconds / nullif(tokens, 0) AS joules_per_token,
    servers.acceptance_length AS acceptance_length, in_flight, seconds, tokens::DOUBLE AS tokens
FROM servers LEFT JOIN gpus USING (run, launch, began_at)
    LEFT JOIN (SELECT run, launch, flag_set FROM launches) USING (run, launch);
COMMENT ON VIEW blocks IS 'Ten seconds of one server that was ready and had rows in flight throughout (a minute where samples were thinned)';

CREATE OR REPLACE VIEW figures AS
WITH long AS (
    SELECT run, launch, flag_set, unnest([
        {figure: 'tokens_per_s', value: tokens_per_s, weight: seconds},
        {figure: 'power_w', value: power_w, weight: seconds},
        {figure: 'joules_per_token', value: joules_per_token, weight: tokens},
        {figure: 'acceptance_length', value: acceptance_length, weight: tokens},
        {figure: 'in_flight', value: in_flight, weight: seconds}], recursive := true)
    FROM blocks
    UNION ALL
    SELECT run, launch, flag_set, 'latency_s', latency_s, 1
    FROM requests LEFT JOIN (SELECT run, launch, flag_set FROM launches) USING (run, launch)
    WHERE outcome = 'done'
), counted AS (
    SELECT run, flag_set, launch, figure,
        CASE WHEN grouping(flag_set) = 1 THEN 'run' WHEN grouping(launch) = 1 THEN 'flag set' ELSE 'launch' END AS level,
        count(*) AS n, sum(weight * value) / sum(weight) AS mean, sum(weight) AS weights,
        sum(weight * weight) AS ww, sum(weight * weight * value) AS wwv, sum(weight * weight * value * value) AS wwvv,
        median(value) AS median, quantile_cont(value, 0.95) AS p95
    FROM long WHERE value IS NOT NULL AND weight > 0
    GROUP BY GROUPING SETS ((run, figure), (run, flag_set, figure), (run, flag_set, launch, figure))
)
SELECT run, level, flag_set, launch, figure, n, mean,
    CASE WHEN n >= 4 THEN mean - t975(n - 1) * error END AS low,
    CASE WHEN n >= 4 THEN mean + t975(n - 1) * error END AS high, median, p95
FROM (SELECT *, sqrt(greatest(0, wwvv - 2 * mean * wwv + mean * mean * ww) * n / nullif(n - 1, 0)) / weights AS error
    FROM counted);
COMMENT ON VIEW figures IS 'Weighted means (by time; J/token and acceptance by tokens, so that they are ratios of sums) with 95 % intervals, of one server: over blocks of ten seconds (latency_s: over kept rows). level is run, flag set or launch; fewer than 4 give no interval. Watts, joules per decoded token, tokens per second, tokens per verify step, rows, seconds';

CREATE OR REPLACE VIEW answers AS
WITH counted AS (
    SELECT run, flag_set, launch, answer_class,
        CASE WHEN grouping(flag_set) = 1 THEN 'run' WHEN grouping(launch) = 1 THEN 'flag set' ELSE 'launch' END AS level,
        count(*) AS n
    FROM requests LEFT JOIN (SELECT run, launch, flag_set FROM launches) USING (run, launch)
    WHERE answer_class IS NOT NULL
    GROUP BY GROUPING SETS ((run, answer_class), (run, flag_set, answer_class), (run, flag_set, launch, answer_class))
), shared AS (
    SELECT *, sum(n) OVER (PARTITION BY run, level, flag_set, launch) AS total FROM counted
)
SELECT run, level, flag_set, launch, answer_class, n, total::BIGINT AS total, n / total AS share,
    (n / total + 1.9207 / total - 1.96 * sqrt(n / total * (1 - n / total) / total + 0.9604 / total / total))
        / (1 + 3.8416 / total) AS low,
    (n / total + 1.9207 / total + 1.96 * sqrt(n / total * (1 - n / total) / total + 0.9604 / total / total))
        / (1 + 3.8416 / total) AS high
FROM shared;
COMMENT ON VIEW answers IS 'Share of each answer class among all answers, also of rows that were tried again, with Wilson''s 95 % interval; level is run, flag set or launch';
