-- The ledger: facts as the load side wrote them, one table per kind of fact. Unknown is NULL, never 0.
-- Times are nanoseconds since the Unix epoch on the clock the row names, or the client clock.

CREATE TABLE studies (
    study_id VARCHAR PRIMARY KEY,
    manifest_id VARCHAR NOT NULL,
    workload_id VARCHAR NOT NULL,
    system_id VARCHAR NOT NULL,
    manifest JSON NOT NULL,
    created_ns BIGINT NOT NULL,
    tfbench_version VARCHAR,
    host JSON
);

CREATE TABLE runs (
    run_id VARCHAR PRIMARY KEY,
    study_id VARCHAR NOT NULL,
    manifest_id VARCHAR NOT NULL,
    workload_id VARCHAR NOT NULL,
    system_id VARCHAR NOT NULL,
    mode VARCHAR NOT NULL,
    load_value DOUBLE,
    repeat INTEGER NOT NULL,
    order_index INTEGER,
    arm VARCHAR,
    pair INTEGER,
    restart INTEGER,
    seed BIGINT,
    schedule_sha256 VARCHAR,
    cache_state VARCHAR,
    status VARCHAR NOT NULL,
    measure_start_ns BIGINT,
    measure_end_ns BIGINT,
    observed JSON,
    signals JSON,
    origin VARCHAR NOT NULL
);

CREATE TABLE attempts (
    run_id VARCHAR NOT NULL,
    attempt_id BIGINT NOT NULL,
    request_id VARCHAR,
    task_id VARCHAR NOT NULL,
    "try" INTEGER,
    role VARCHAR NOT NULL,
    session_id VARCHAR,
    turn INTEGER,
    tenant VARCHAR,
    lora VARCHAR,
    class VARCHAR,
    phase VARCHAR NOT NULL,
    host VARCHAR,
    worker INTEGER,
    connection_id BIGINT,
    new_connection BOOLEAN,
    stamp_source VARCHAR,
    scheduled_ns BIGINT NOT NULL,
    dispatched_ns BIGINT,
    slot_ns BIGINT,
    connected_ns BIGINT,
    sent_ns BIGINT,
    first_byte_ns BIGINT,
    end_ns BIGINT,
    outcome VARCHAR NOT NULL,
    http_status INTEGER,
    error VARCHAR,
    finish_reason VARCHAR,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    output_tokens INTEGER,
    reasoning_tokens INTEGER,
    token_source VARCHAR,
    quality JSON,
    prompt_sha256 VARCHAR,
    output_sha256 VARCHAR
);

CREATE TABLE streams (
    run_id VARCHAR NOT NULL,
    attempt_id BIGINT NOT NULL,
    t_ns BIGINT[],
    user_ns BIGINT[],
    kind VARCHAR[],
    tokens INTEGER[],
    blur_ns BIGINT[]
);

CREATE TABLE texts (
    run_id VARCHAR NOT NULL,
    attempt_id BIGINT NOT NULL,
    prompt VARCHAR,
    output VARCHAR
);

CREATE TABLE raw (
    run_id VARCHAR NOT NULL,
    attempt_id BIGINT NOT NULL,
    bytes BLOB
);

CREATE TABLE server_events (
    run_id VARCHAR NOT NULL,
    request_id VARCHAR,
    stage VARCHAR NOT NULL,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT,
    clock VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    attrs JSON
);

CREATE TABLE samples (
    run_id VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    series VARCHAR NOT NULL,
    labels JSON,
    t_ns BIGINT NOT NULL,
    clock VARCHAR NOT NULL,
    value DOUBLE
);

CREATE TABLE clock_anchors (
    run_id VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    mono_ns BIGINT NOT NULL,
    real_ns BIGINT NOT NULL,
    width_ns BIGINT NOT NULL
);

CREATE TABLE clock_links (
    run_id VARCHAR NOT NULL,
    clock_a VARCHAR NOT NULL,
    clock_b VARCHAR NOT NULL,
    t_ns BIGINT NOT NULL,
    offset_lo_ns BIGINT NOT NULL,
    offset_hi_ns BIGINT NOT NULL
);

CREATE TABLE verdicts (
    run_id VARCHAR NOT NULL,
    ruleset VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    reasons JSON,
    PRIMARY KEY (run_id, ruleset, kind)
);

CREATE TABLE foreign_figures (
    run_id VARCHAR NOT NULL,
    lens VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    stat VARCHAR,
    unit VARCHAR,
    value DOUBLE,
    lo DOUBLE,
    hi DOUBLE,
    n BIGINT,
    source VARCHAR
);

CREATE TABLE calibrations (
    host VARCHAR NOT NULL,
    t_ns BIGINT NOT NULL,
    figures JSON
);
