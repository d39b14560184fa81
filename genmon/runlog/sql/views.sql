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
