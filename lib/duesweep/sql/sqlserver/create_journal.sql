-- Creates what duesweep keeps beside the store: which ledger a source is bound to, the sweeps that are
-- not settled yet, what their batches did, and the retry counters.
IF OBJECT_ID(N'{bindings_literal}', 'U') IS NULL
CREATE TABLE {bindings} (
    source nvarchar(400) NOT NULL PRIMARY KEY,
    delayed nvarchar(400) NOT NULL,
    ledger_id uniqueidentifier NOT NULL,
    bound_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME()
);
IF OBJECT_ID(N'{sweeps_literal}', 'U') IS NULL
CREATE TABLE {sweeps} (
    sweep_id uniqueidentifier NOT NULL PRIMARY KEY,
    source nvarchar(400) NOT NULL,
    started_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    horizon datetime2(7) NOT NULL,
    planned nvarchar(max) NOT NULL DEFAULT N'[]',
    exhausted bigint NOT NULL DEFAULT 0,
    over_limit bigint NOT NULL DEFAULT 0,
    attempts_changed bit NOT NULL DEFAULT 0,
    closed_at datetime2(3),
    abandoned bit NOT NULL DEFAULT 0,
    remaining bigint NOT NULL DEFAULT 0,
    reason nvarchar(max),
    sealed_at datetime2(3)
);
IF OBJECT_ID(N'{journal_literal}', 'U') IS NULL
CREATE TABLE {journal} (
    id bigint IDENTITY(1,1) NOT NULL,
    sweep_id uniqueidentifier NOT NULL,
    slice int NOT NULL,
    kind varchar(10) NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    -- kind 'batch': what was delivered, and how many were not
    dispatched int,
    failed int,
    body_bytes bigint,
    attempts_changed bit,
    lateness_ms varbinary(max),
    outcomes varbinary(max),
    -- kind 'slice': its end, and what became of the Dues that its task was given
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    [left] bigint,
    reason nvarchar(max),
    -- kind 'exhausted': the whole message; headers are JSON where they could be read
    message_key nvarchar(250),
    message_id nvarchar(max),
    message_type nvarchar(max),
    destination nvarchar(max),
    queue nvarchar(max),
    due_us bigint,
    dispatched_us bigint,
    attempts int,
    first_failed_us bigint,
    error_class nvarchar(max),
    error_text nvarchar(max),
    stack nvarchar(max),
    headers nvarchar(max),
    headers_text nvarchar(max),
    body varbinary(max),
    PRIMARY KEY (sweep_id, id)
);
IF OBJECT_ID(N'{attempts_literal}', 'U') IS NULL
CREATE TABLE {attempts} (
    source nvarchar(400) NOT NULL,
    message_key nvarchar(250) NOT NULL,
    message_id nvarchar(max),
    destination nvarchar(max),
    due_at datetime2(7),
    attempts int NOT NULL,
    first_failed_at datetime2(3) NOT NULL,
    last_failed_at datetime2(3) NOT NULL,
    next_attempt_at datetime2(3) NOT NULL,
    error_class nvarchar(max) NOT NULL,
    error_text nvarchar(max) NOT NULL
);
IF NOT EXISTS (
    SELECT 1
    FROM sys.index_columns i
    JOIN sys.columns c ON c.object_id = i.object_id AND c.column_id = i.column_id
    WHERE i.object_id = OBJECT_ID(N'{attempts_literal}') AND LOWER(c.name) = 'message_key'
)
-- Not the table's primary key: a clustered one would be too long.
BEGIN
    CREATE UNIQUE NONCLUSTERED INDEX duesweep_attempts_key ON {attempts} (source, message_key);
    CREATE NONCLUSTERED INDEX duesweep_attempts_due ON {attempts} (source, due_at);
END;
-- What tables of an earlier version lack.
IF COL_LENGTH(N'{sweeps_literal}', 'reason') IS NULL
ALTER TABLE {sweeps} ADD reason nvarchar(max);
IF COL_LENGTH(N'{journal_literal}', 'given') IS NULL
ALTER TABLE {journal} ADD given bigint, claimed bigint, skipped bigint, gone bigint, later bigint, [left] bigint;
