CREATE TABLE sweep_points (
    run VARCHAR, name VARCHAR, measured_at TIMESTAMP, model VARCHAR, host VARCHAR, simulated BOOLEAN, genmon VARCHAR,
    sglang VARCHAR, variant VARCHAR, mtp BOOLEAN, changed MAP(VARCHAR, VARCHAR), concurrency INTEGER, server VARCHAR,
    gpu_uuid VARCHAR, gpu_name VARCHAR, cap BIGINT, tokens_per_s DOUBLE, tokens_per_s_low DOUBLE,
    tokens_per_s_high DOUBLE, slices INTEGER, seconds DOUBLE, power_w DOUBLE, power_limit_w DOUBLE,
    joules_per_token DOUBLE, acceptance_length DOUBLE, ttft_s DOUBLE, itl_s DOUBLE, streams INTEGER,
    tokens_per_row DOUBLE, skipped VARCHAR
);
COMMENT ON TABLE sweep_points IS 'One row each point of a sweep: a flag set at a concurrency on one server. Times are UTC.';
COMMENT ON COLUMN sweep_points.run IS 'Key of the sweep: name, time of its start and four random digits';
COMMENT ON COLUMN sweep_points.name IS 'Name of the run file';
COMMENT ON COLUMN sweep_points.variant IS 'The flag set in words';
COMMENT ON COLUMN sweep_points.mtp IS 'Multi-token prediction; NULL where the point was skipped';
COMMENT ON COLUMN sweep_points.changed IS 'The varied launch flags, without those of multi-token prediction';
COMMENT ON COLUMN sweep_points.concurrency IS 'Rows in flight on the server';
COMMENT ON COLUMN sweep_points.cap IS 'Effective concurrency cap, rows';
COMMENT ON COLUMN sweep_points.tokens_per_s IS 'Decoded tokens per second of the server, mean';
COMMENT ON COLUMN sweep_points.tokens_per_s_low IS 'Its 95 % interval, tokens per second';
COMMENT ON COLUMN sweep_points.tokens_per_s_high IS 'Its 95 % interval, tokens per second';
COMMENT ON COLUMN sweep_points.slices IS 'Slices of the window that the interval is from';
COMMENT ON COLUMN sweep_points.seconds IS 'Length of the window';
COMMENT ON COLUMN sweep_points.power_w IS 'Watts of the GPU, mean over the window from its energy counter';
COMMENT ON COLUMN sweep_points.power_limit_w IS 'Watts, the enforced limit';
COMMENT ON COLUMN sweep_points.joules_per_token IS 'Joules per decoded token';
COMMENT ON COLUMN sweep_points.acceptance_length IS 'Tokens per verify step, 1 to steps + 1; NULL without speculation';
COMMENT ON COLUMN sweep_points.ttft_s IS 'Seconds to the first token, median of the streamed requests';
COMMENT ON COLUMN sweep_points.itl_s IS 'Seconds between tokens, median of the streamed requests';
COMMENT ON COLUMN sweep_points.streams IS 'Streamed requests';
COMMENT ON COLUMN sweep_points.tokens_per_row IS 'Completion tokens of a row, mean';
COMMENT ON COLUMN sweep_points.skipped IS 'Why the point was not measured; NULL when it was';
