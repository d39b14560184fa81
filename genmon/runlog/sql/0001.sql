CREATE TABLE schema_version (version INTEGER, genmon VARCHAR, migrated_at TIMESTAMP);
COMMENT ON TABLE schema_version IS 'One row a migration; the greatest version counts. Written by genmon.';

CREATE TABLE spool_positions (run VARCHAR, segment BIGINT);
COMMENT ON TABLE spool_positions IS 'How far the spool of each run was taken in. Written by genmon.';

CREATE TABLE runs (
    run VARCHAR, name VARCHAR, model VARCHAR, host VARCHAR, simulated BOOLEAN, genmon VARCHAR, sglang VARCHAR,
    git_revision VARCHAR, project_directory VARCHAR, job_directory VARCHAR, config VARCHAR,
    started_at TIMESTAMP, rows_total BIGINT, last_seen_at TIMESTAMP, ended_at TIMESTAMP, outcome VARCHAR, reason VARCHAR,
    attempts BIGINT DEFAULT 0, rows_done BIGINT DEFAULT 0, rows_failed BIGINT DEFAULT 0,
    prompt_tokens BIGINT DEFAULT 0, completion_tokens BIGINT DEFAULT 0, decoded_tokens BIGINT,
    energy_j DOUBLE, gpu_seconds DOUBLE, accepted_weight DOUBLE DEFAULT 0, accepted_sum DOUBLE DEFAULT 0
);
COMMENT ON TABLE runs IS 'One row each time a run was started; the same job may have several. Times are UTC.';
COMMENT ON COLUMN runs.run IS 'Key: the run''s name, when it began, and four random digits';
COMMENT ON COLUMN runs.simulated IS 'Whether servers and GPUs were simulated: no figure of it is a measurement';
COMMENT ON COLUMN runs.genmon IS 'Version of genmon';
COMMENT ON COLUMN runs.sglang IS 'Version of SGLang that the run launches; each launch says its own';
COMMENT ON COLUMN runs.git_revision IS 'Commit of the project directory, -dirty when it had changes; NULL outside git';
COMMENT ON COLUMN runs.project_directory IS 'The directory in which genmon was started';
COMMENT ON COLUMN runs.job_directory IS 'Where the shards are';
COMMENT ON COLUMN runs.config IS 'The run file as JSON, without secrets';
COMMENT ON COLUMN runs.rows_total IS 'Rows of the whole job, those done by earlier runs too';
COMMENT ON COLUMN runs.last_seen_at IS 'Time of the newest thing known of the run (UTC)';
COMMENT ON COLUMN runs.outcome IS 'finished, stopped, failed or interrupted (killed); NULL while it goes on';
COMMENT ON COLUMN runs.reason IS 'The outcome in a sentence';
COMMENT ON COLUMN runs.attempts IS 'Attempts at rows in this run';
COMMENT ON COLUMN runs.rows_done IS 'Rows whose answer was kept in this run';
COMMENT ON COLUMN runs.rows_failed IS 'Rows given up in this run';
COMMENT ON COLUMN runs.prompt_tokens IS 'Prompt tokens of kept rows';
COMMENT ON COLUMN runs.completion_tokens IS 'Completion tokens of kept rows';
COMMENT ON COLUMN runs.decoded_tokens IS 'Tokens decoded by the servers, kept or not; NULL without a counter';
COMMENT ON COLUMN runs.energy_j IS 'Joules of the GPUs, from their energy counters; NULL without one';
COMMENT ON COLUMN runs.gpu_seconds IS 'Seconds over which energy_j was gained, summed over GPUs';
COMMENT ON COLUMN runs.accepted_weight IS 'Decoded tokens while the acceptance length was known';
COMMENT ON COLUMN runs.accepted_sum IS 'Acceptance length times those tokens, summed';

CREATE TABLE launches (
    run VARCHAR, launch VARCHAR, server VARCHAR, number INTEGER, host VARCHAR, gpu_index INTEGER, gpu_uuid VARCHAR,
    simulated BOOLEAN, external BOOLEAN, sglang VARCHAR, pid BIGINT, argv VARCHAR[], flags MAP(VARCHAR, VARCHAR),
    flag_set VARCHAR, mtp BOOLEAN, cap BIGINT, started_at TIMESTAMP, ready_s DOUBLE, ended_at TIMESTAMP,
    end_reason VARCHAR
);
COMMENT ON TABLE launches IS 'One row each launch of a server. Times are UTC.';
COMMENT ON COLUMN launches.launch IS 'Key within its run: server#number, as in sidecars and launches.jsonl';
COMMENT ON COLUMN launches.external IS 'A server that already ran (servers.urls)';
COMMENT ON COLUMN launches.flags IS 'Launch flags by name without dashes; true for one without a value. No ports, no secrets';
COMMENT ON COLUMN launches.flag_set IS 'Short name of the flags: the same flags have the same, in all runs';
COMMENT ON COLUMN launches.mtp IS 'Multi-token prediction as the server itself says; NULL when it was never asked';
COMMENT ON COLUMN launches.cap IS 'Effective concurrency cap, rows';
COMMENT ON COLUMN launches.ready_s IS 'Seconds from start to ready';
COMMENT ON COLUMN launches.end_reason IS 'Why it ended';

CREATE TABLE gpu_samples (
    run VARCHAR, taken_at TIMESTAMP, host VARCHAR, gpu_uuid VARCHAR, gpu_index INTEGER, gpu_name VARCHAR,
    launch VARCHAR, simulated BOOLEAN, seconds DOUBLE, energy_j DOUBLE, power_w DOUBLE, power_instant_w DOUBLE,
    power_limit_w DOUBLE, power_default_limit_w DOUBLE, sm_clock_mhz DOUBLE, temperature_c DOUBLE, utilization DOUBLE,
    memory_used_b DOUBLE, memory_total_b DOUBLE, reasons VARCHAR[], trouble VARCHAR, samples INTEGER
);
COMMENT ON TABLE gpu_samples IS 'One row a GPU a second; a minute for old ones (samples says how many a row stands for). Times are UTC.';
COMMENT ON COLUMN gpu_samples.launch IS 'The launch that the GPU served then';
COMMENT ON COLUMN gpu_samples.seconds IS 'Seconds since the sample before; NULL at the first';
COMMENT ON COLUMN gpu_samples.energy_j IS 'Joules since the sample before, from the energy counter; sums are exact, also over thinned rows';
COMMENT ON COLUMN gpu_samples.power_w IS 'Watts, the driver''s 1-second average';
COMMENT ON COLUMN gpu_samples.power_instant_w IS 'Watts, instantaneous';
COMMENT ON COLUMN gpu_samples.power_limit_w IS 'Watts, the enforced limit';
COMMENT ON COLUMN gpu_samples.power_default_limit_w IS 'Watts, the default limit (TDP)';
COMMENT ON COLUMN gpu_samples.sm_clock_mhz IS 'MHz';
COMMENT ON COLUMN gpu_samples.temperature_c IS 'Degrees Celsius';
COMMENT ON COLUMN gpu_samples.utilization IS 'Share of time with a kernel, 0 to 1';
COMMENT ON COLUMN gpu_samples.memory_used_b IS 'Bytes';
COMMENT ON COLUMN gpu_samples.memory_total_b IS 'Bytes';
COMMENT ON COLUMN gpu_samples.reasons IS 'Clock event reasons';
COMMENT ON COLUMN gpu_samples.trouble IS 'Why fields are missing';
COMMENT ON COLUMN gpu_samples.samples IS 'Samples that this row stands for';

CREATE TABLE server_samples (
    run VARCHAR, taken_at TIMESTAMP, launch VARCHAR, simulated BOOLEAN, phase VARCHAR, seconds DOUBLE, tokens BIGINT,
    tokens_per_s DOUBLE, in_flight DOUBLE, running DOUBLE, queued DOUBLE, acceptance_length DOUBLE, kv_usage DOUBLE,
    mamba_usage DOUBLE, samples INTEGER
);
COMMENT ON TABLE server_samples IS 'One row a server a second; a minute for old ones. Times are UTC.';
COMMENT ON COLUMN server_samples.phase IS 'waiting, starting, smoke, ready, draining, stopping, stopped, backoff or given_up';
COMMENT ON COLUMN server_samples.seconds IS 'Seconds since the sample before of the same launch; NULL at the first';
COMMENT ON COLUMN server_samples.tokens IS 'Tokens decoded since the sample before, from the server''s counter';
COMMENT ON COLUMN server_samples.tokens_per_s IS 'Decode rate as the dashboard showed it, tokens per second';
COMMENT ON COLUMN server_samples.in_flight IS 'Rows sent and not got back';
COMMENT ON COLUMN server_samples.running IS 'Requests in the batch, as the server says';
COMMENT ON COLUMN server_samples.queued IS 'Requests waiting in the server';
COMMENT ON COLUMN server_samples.acceptance_length IS 'Tokens per verify step, 1 to steps + 1; NULL without speculation';
COMMENT ON COLUMN server_samples.kv_usage IS 'Share of the KV cache in use, 0 to 1';
COMMENT ON COLUMN server_samples.mamba_usage IS 'Share of the mamba states in use, 0 to 1';
COMMENT ON COLUMN server_samples.samples IS 'Samples that this row stands for';

CREATE TABLE requests (
    run VARCHAR, row_id VARCHAR, position BIGINT, attempt INTEGER, launch VARCHAR, simulated BOOLEAN,
    started_at TIMESTAMP, latency_s DOUBLE, outcome VARCHAR, answer_class VARCHAR, finish_reason VARCHAR,
    prompt_tokens BIGINT, completion_tokens BIGINT, reasoning_tokens BIGINT, acceptance_length DOUBLE, trouble VARCHAR
);
COMMENT ON TABLE requests IS 'One row an attempt at a row of the job; an attempt may have several turns. Times are UTC.';
COMMENT ON COLUMN requests.row_id IS 'The row''s id, as in the shards';
COMMENT ON COLUMN requests.position IS 'The row''s number in the job';
COMMENT ON COLUMN requests.latency_s IS 'Seconds from sending to the whole answer, over all turns';
COMMENT ON COLUMN requests.outcome IS 'done (kept), retry (a bad answer, tried again), failed (given up), server (the server failed it), returned (taken back unfinished)';
COMMENT ON COLUMN requests.answer_class IS 'complete, truncated, empty, unclosed_thought, loop or aborted; NULL without an answer';
COMMENT ON COLUMN requests.acceptance_length IS 'Tokens per verify step, where the server gives it for a request';
COMMENT ON COLUMN requests.trouble IS 'What went wrong, in a sentence';

CREATE TABLE tells (
    run VARCHAR, tell VARCHAR, level VARCHAR, sentence VARCHAR, server VARCHAR, mend VARCHAR,
    evidence VARCHAR[][], followed VARCHAR, since_at TIMESTAMP, gone_at TIMESTAMP
);
COMMENT ON TABLE tells IS 'What genmon said was wrong, from when until when. Times are UTC.';
COMMENT ON COLUMN tells.level IS 'look, warn or alarm';
COMMENT ON COLUMN tells.mend IS 'What was said to mend it';
COMMENT ON COLUMN tells.evidence IS 'Figures it rests on, each as name, value, what is usual here; as they were when it came up';
COMMENT ON COLUMN tells.followed IS 'What following it did, in figures';

CREATE TABLE commands (
    run VARCHAR, given_at TIMESTAMP, given_by VARCHAR, command VARCHAR, arguments VARCHAR, obeyed BOOLEAN, effect VARCHAR
);
COMMENT ON TABLE commands IS 'Each command (key press) that reached the run. Times are UTC.';
COMMENT ON COLUMN commands.arguments IS 'What was asked for, as JSON';
COMMENT ON COLUMN commands.obeyed IS 'Whether it was obeyed; otherwise effect says why not';

CREATE TABLE changes (
    run VARCHAR, change INTEGER, what VARCHAR, given_by VARCHAR, servers VARCHAR[],
    flags STRUCT("server" VARCHAR, "before" VARCHAR[], "after" VARCHAR[])[], canary BOOLEAN, started_at TIMESTAMP,
    ended_at TIMESTAMP, outcome VARCHAR, rolled_back BOOLEAN, verdict VARCHAR, verdict_sentence VARCHAR,
    verdict_settled BOOLEAN,
    effects STRUCT("figure" VARCHAR, "before" DOUBLE, "after" DOUBLE, "change" DOUBLE, "low" DOUBLE, "high" DOUBLE,
        "n_before" BIGINT, "n_after" BIGINT, "server" VARCHAR)[],
    control VARCHAR[]
);
COMMENT ON TABLE changes IS 'Launch flags changed while the run went on, with what that brought. Times are UTC.';
COMMENT ON COLUMN changes.verdict IS 'better, worse or no difference yet';
COMMENT ON COLUMN changes.effects IS 'Relative change of each figure with its 95 % interval: 0.1 is 10 % more; server NULL is all changed servers together';
COMMENT ON COLUMN changes.control IS 'Unchanged servers that it was compared with';
