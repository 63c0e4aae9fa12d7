-- Setup: properties of the server and of tables, the tables of the store and of the journal, the ledger that
-- a source is bound to, and the checks of `doctor`. Queue tables are in queue.sql.

-- name: describe_session
-- Returns the server's version, and the database's name, compatibility level, isolation of readers from writers,
-- durability of commits, and whether it accepts writes. By its name: in Azure, its number there is another one.
SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, DB_NAME() AS database_name,
       CONVERT(nvarchar(60), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) AS updateability,
       d.compatibility_level, d.is_read_committed_snapshot_on AS is_read_committed_snapshot,
       d.delayed_durability_desc AS delayed_durability
FROM (SELECT 1 AS one) s
LEFT JOIN sys.databases d ON d.name = DB_NAME();

-- name: describe_catalog
-- Returns whether the database exists, and whether this login can open it.
SELECT CASE WHEN DB_ID(@catalog) IS NULL THEN 0 ELSE 1 END AS found,
       COALESCE(HAS_DBACCESS(@catalog), 0) AS is_open;

-- name: describe_server
-- Returns whether the server can delete through a table expression. Babelfish cannot.
SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS deletes_expressions;

-- fragment: index_on_due
-- An index that can be used and begins with that column.
SELECT 1
FROM sys.indexes i
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = OBJECT_ID($1) AND i.is_disabled = 0 AND i.has_filter = 0
  AND i.type IN (1, 2) AND ic.key_ordinal = 1 AND LOWER(QUOTENAME(c.name)) = LOWER(N'{due}')

-- name: describe_delayed
-- Returns whether the server can delete through a table expression, and whether its reads of the delayed table can be
-- forced to use an index on Due: there is one. Babelfish can do neither.
SELECT s.is_real AS deletes_expressions,
       CASE WHEN s.is_real = 1 AND EXISTS (
           {{index_on_due: @name}}
       ) THEN 1 ELSE 0 END AS seeks
FROM (
    SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS is_real
) s;

-- name: read_lists
-- Returns the elements of a JSON array, joined by commas, and the length of a list. Fails if the server or the
-- database's compatibility level is too old for the statements of a sweep.
SELECT STRING_AGG(j.[value], N',') AS joined, (SELECT COUNT(*) FROM STRING_SPLIT(@words, ',')) AS words
FROM OPENJSON(@numbers) j;

-- name: find_table
-- Returns whether a table with this quoted name exists.
SELECT CASE WHEN OBJECT_ID(@name, 'U') IS NULL THEN 0 ELSE 1 END AS found;

-- name: describe_table
-- Returns a table's columns, kind, format's mark, and INSTEAD OF trigger, and how many security policies there are. No
-- row: it does not exist, or this user may not see it. The views are not joined: for that some servers take a second.
SELECT c.COLUMN_NAME AS name, c.DATA_TYPE AS type,
       (SELECT t.TABLE_TYPE
        FROM {catalog}.INFORMATION_SCHEMA.TABLES t
        WHERE t.TABLE_SCHEMA = @schema AND t.TABLE_NAME = @table) AS kind,
       (SELECT CONVERT(nvarchar(200), p.[value])
        FROM {catalog}.sys.extended_properties p
        WHERE p.class = 1 AND p.major_id = OBJECT_ID(@name, 'U') AND p.minor_id = 0
          AND p.name = N'duesweep.format') AS mark,
       (SELECT COUNT(*) FROM {catalog}.sys.objects o WHERE o.type = 'SP') AS policies,
       (SELECT MAX(g.name)
        FROM {catalog}.sys.triggers g
        WHERE g.parent_id = OBJECT_ID(@name, 'U') AND g.is_instead_of_trigger = 1 AND g.is_disabled = 0) AS hook
FROM {catalog}.INFORMATION_SCHEMA.COLUMNS c
WHERE c.TABLE_SCHEMA = @schema AND c.TABLE_NAME = @table
ORDER BY c.ORDINAL_POSITION;

-- name: describe_long_name
-- Returns the same of a table whose name some servers shorten in their views; column names may be in lower case there.
SELECT c.name, TYPE_NAME(c.system_type_id) AS type, 'BASE TABLE' AS kind,
       (SELECT CONVERT(nvarchar(200), p.[value])
        FROM {catalog}.sys.extended_properties p
        WHERE p.class = 1 AND p.major_id = c.object_id AND p.minor_id = 0 AND p.name = N'duesweep.format') AS mark,
       0 AS policies, NULL AS hook
FROM {catalog}.sys.columns c
WHERE c.object_id = OBJECT_ID(@name, 'U')
ORDER BY c.column_id;

-- name: hidden_tables
-- Returns the tables of a schema whose rows a security policy filters or blocks, for any user, and the policy. Only
-- for a database with policies that this user sees: not all servers know them.
SELECT t.name AS [table], ps.name AS policy_schema, p.name AS policy,
       MAX(CASE WHEN d.predicate_type = 0 THEN 1 ELSE 0 END) AS is_filtered
FROM {catalog}.sys.security_predicates d
JOIN {catalog}.sys.security_policies p ON p.object_id = d.object_id
JOIN {catalog}.sys.schemas ps ON ps.schema_id = p.schema_id
JOIN {catalog}.sys.objects t ON t.object_id = d.target_object_id
JOIN {catalog}.sys.schemas s ON s.schema_id = t.schema_id
WHERE p.is_enabled = 1 AND s.name = @schema
GROUP BY t.name, ps.name, p.name
ORDER BY t.name;

-- name: similar_tables
-- Returns the schemas and names of tables whose names end alike, at most 1,000.
SELECT TOP (1000) t.TABLE_SCHEMA AS [schema], t.TABLE_NAME AS name
FROM {catalog}.INFORMATION_SCHEMA.TABLES t
WHERE t.TABLE_TYPE = 'BASE TABLE' AND RIGHT(t.TABLE_NAME, LEN(@ending)) = @ending
ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME;

-- name: describe_indexes
-- Returns the first column of each usable index of a table, and whether it leaves rows out. Does not ask for
-- the indexes' names, which users choose.
SELECT c.name AS column_name, MAX(CASE WHEN i.has_filter = 1 THEN 1 ELSE 0 END) AS is_partial
FROM {catalog}.sys.indexes i
JOIN {catalog}.sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN {catalog}.sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = OBJECT_ID(@name) AND i.is_disabled = 0 AND ic.key_ordinal = 1 AND i.type IN (1, 2)
GROUP BY i.index_id, c.name;

-- name: describe_rights
-- Returns for each right whether the session has it on a table (1, 0, or NULL: no such table), and its user; without lists.
-- Of a name of more than 128 characters the server cannot tell (1), so this database's tables are named without it.
SELECT r.name, USER_NAME() AS grantee,
       CASE WHEN LEN(n.name) > 128 THEN 1 ELSE HAS_PERMS_BY_NAME(n.name, 'OBJECT', r.name) END AS is_granted
FROM (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) r (name)
CROSS JOIN (SELECT CASE WHEN DB_ID(@catalog) = DB_ID() THEN @local ELSE @name END AS name) n;

-- fragment: under_lock
-- By the name of the lock that the transport takes to create the table.
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'{$1_lock}', @LockMode = 'Exclusive',
    @LockOwner = 'Session', @LockTimeout = 30000;
IF @Answer < 0 THROW 50000, N'Another session has been $2 this table for too long', 1;
BEGIN TRY
    $3
END TRY
BEGIN CATCH
    EXEC sys.sp_releaseapplock @Resource = N'{$1_lock}', @LockOwner = 'Session';
    THROW;
END CATCH;
EXEC sys.sp_releaseapplock @Resource = N'{$1_lock}', @LockOwner = 'Session';

-- fragment: create_once
IF OBJECT_ID(N'{$1_literal}', 'U') IS NULL
BEGIN
    {{under_lock: $1; creating
        IF OBJECT_ID(N'{$1_literal}', 'U') IS NULL
        BEGIN
            $2
        END
    }}
END;

-- name: create_delayed
-- Creates the delayed table as the transport does, unless it exists. An application lock lets one
-- session at a time create it.
{{create_once: delayed
    CREATE TABLE {delayed} (
        Headers nvarchar(max) NOT NULL,
        Body varbinary(max),
        Due datetime NOT NULL,
        RowVersion bigint IDENTITY(1,1) NOT NULL
    );
    CREATE NONCLUSTERED INDEX [Index_Due] ON {delayed} ([Due]);
}}

-- name: create_msmq_delayed
-- Creates the MSMQ transport's table of delayed messages as its installer does, unless it exists.
-- An application lock lets one session at a time create it.
{{create_once: delayed
    CREATE TABLE {delayed} (
        Id nvarchar(250) NOT NULL PRIMARY KEY,
        Destination nvarchar(200),
        State varbinary(max),
        Time datetime,
        Headers varbinary(max) NOT NULL,
        RetryCount int NOT NULL DEFAULT 0
    );
    CREATE INDEX [Index_Time] ON {delayed} ([Time]);
}}

-- name: create_due_index
-- Creates the index on Due of a delayed table, as the installers do, unless an index that can be used begins with
-- that column. An application lock lets one session at a time do so. Until then no session can write to the table.
{{under_lock: delayed; changing
    IF NOT EXISTS (
        {{index_on_due: N'{delayed_literal}'}}
    )
        CREATE NONCLUSTERED INDEX {index} ON {delayed} ({due});
}}

-- name: create_journal
-- Creates the tables that duesweep keeps next to the store: the ledger that each source is bound to,
-- the sweeps and commands that are not settled yet, their results, and the retry counters.
IF OBJECT_ID(N'{bindings_literal}', 'U') IS NULL
CREATE TABLE {bindings} (
    source nvarchar(400) NOT NULL PRIMARY KEY,
    delayed nvarchar(400) NOT NULL,
    ledger_id uniqueidentifier NOT NULL,
    bound_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    -- Which journal this is, which sweep or command the ledger got last, and where the ledger was then.
    journal_id uniqueidentifier,
    settled_sweep uniqueidentifier,
    settled_at datetime2(3),
    place nvarchar(max)
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
    engine nvarchar(50),
    stop_at datetime2(3),
    sealed_at datetime2(3),
    -- An operator's command; NULL: a sweep.
    command nvarchar(50),
    given_by nvarchar(max),
    given_reason nvarchar(max)
);
IF OBJECT_ID(N'{journal_literal}', 'U') IS NULL
CREATE TABLE {journal} (
    id bigint IDENTITY(1,1) NOT NULL,
    sweep_id uniqueidentifier NOT NULL,
    slice int NOT NULL,
    kind varchar(10) NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    -- kind 'batch': the outcomes, and how many messages were delivered or failed
    dispatched int,
    failed int,
    body_bytes bigint,
    attempts_changed bit,
    lateness_ms varbinary(max),
    outcomes varbinary(max),
    -- kind 'slice': the end of a slice, and the results of its task's claim keys; error_text has the batches
    -- that the store could not move
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    held bigint,
    [left] bigint,
    reason nvarchar(max),
    breakers nvarchar(max),
    -- kind 'exhausted': the whole message; headers are JSON if they could be read
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
-- Not with a primary key: a clustered key may have 900 bytes, and this one can have more.
IF OBJECT_ID(N'{attempts_literal}', 'U') IS NULL
BEGIN
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
CREATE UNIQUE NONCLUSTERED INDEX duesweep_attempts_key ON {attempts} (source, message_key);
CREATE NONCLUSTERED INDEX duesweep_attempts_due ON {attempts} (source, due_at);
END;
-- Changes by an operator's commands. The reference keeps earlier versions, which know of no commands,
-- from deleting one before its changes are in the ledger.
IF OBJECT_ID(N'{changes_literal}', 'U') IS NULL
CREATE TABLE {changes} (
    id bigint IDENTITY(1,1) NOT NULL,
    sweep_id uniqueidentifier NOT NULL REFERENCES {sweeps_local} (sweep_id),
    change varchar(20) NOT NULL,
    changed_us bigint NOT NULL,
    message_key nvarchar(250) NOT NULL,
    message_id nvarchar(max),
    message_type nvarchar(max),
    destination nvarchar(max),
    due_before_us bigint,
    due_after_us bigint,
    queue nvarchar(max),
    [of] nvarchar(50),
    new_key nvarchar(250),
    attempts int NOT NULL,
    body_bytes bigint NOT NULL,
    -- Of a message that was cancelled; headers are JSON if they could be read, headers_text is as
    -- they were stored.
    headers nvarchar(max),
    headers_text nvarchar(max),
    body varbinary(max),
    PRIMARY KEY (sweep_id, id)
);
-- Not with primary keys: a clustered key may have 900 bytes, and these can have more.
IF OBJECT_ID(N'{pauses_literal}', 'U') IS NULL
BEGIN
CREATE TABLE {pauses} (
    source nvarchar(400) NOT NULL,
    -- Upper and lower case differ, as where messages are compared with it.
    pattern nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL,
    paused_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    until_at datetime2(3),
    given_by nvarchar(400) NOT NULL,
    reason nvarchar(max) NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_pauses_key ON {pauses} (source, pattern);
END;
IF OBJECT_ID(N'{limits_literal}', 'U') IS NULL
BEGIN
CREATE TABLE {limits} (
    source nvarchar(400) NOT NULL,
    -- Upper and lower case differ, as where messages are compared with it.
    pattern nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL,
    free_us bigint NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_limits_key ON {limits} (source, pattern);
END;
IF OBJECT_ID(N'{leases_literal}', 'U') IS NULL
BEGIN
CREATE TABLE {leases} (
    name nvarchar(450) COLLATE Latin1_General_BIN2 NOT NULL,
    holder uniqueidentifier NOT NULL,
    -- For people, and what tells it from all other processes.
    process nvarchar(400) NOT NULL,
    mark nvarchar(400) NOT NULL,
    taken_at datetime2(7) NOT NULL,
    until_at datetime2(7) NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_leases_key ON {leases} (name);
END;
-- A journal of the first format may lack these.
IF COL_LENGTH(N'{bindings_literal}', 'journal_id') IS NULL
BEGIN
ALTER TABLE {bindings} ADD journal_id uniqueidentifier;
END;
IF COL_LENGTH(N'{bindings_literal}', 'settled_sweep') IS NULL
BEGIN
ALTER TABLE {bindings} ADD settled_sweep uniqueidentifier;
END;
IF COL_LENGTH(N'{bindings_literal}', 'settled_at') IS NULL
BEGIN
ALTER TABLE {bindings} ADD settled_at datetime2(3);
END;
IF COL_LENGTH(N'{bindings_literal}', 'place') IS NULL
BEGIN
ALTER TABLE {bindings} ADD place nvarchar(max);
END;
-- The format of all these tables. A newer version's mark stays.
IF EXISTS (
    SELECT 1 FROM sys.extended_properties p
    WHERE p.class = 1 AND p.major_id = OBJECT_ID(N'{journal_literal}', 'U') AND p.minor_id = 0
      AND p.name = N'duesweep.format' AND CONVERT(nvarchar(200), p.[value]) = N'{first_format}'
)
BEGIN
    EXEC sys.sp_dropextendedproperty N'duesweep.format', N'SCHEMA', N'{journal_schema}', N'TABLE', N'duesweep_journal';
END;
IF NOT EXISTS (
    SELECT 1 FROM sys.extended_properties p
    WHERE p.class = 1 AND p.major_id = OBJECT_ID(N'{journal_literal}', 'U') AND p.minor_id = 0
      AND p.name = N'duesweep.format'
)
BEGIN
    EXEC sys.sp_addextendedproperty N'duesweep.format', N'{format}', N'SCHEMA', N'{journal_schema}', N'TABLE',
        N'duesweep_journal';
END;

-- name: read_binding
-- Returns a source's delayed table, the ledger that it is bound to and since when, which journal this is, the sweep
-- or command that the ledger got last, and where the ledger was.
SELECT found.delayed, LOWER(CONVERT(varchar(36), found.ledger_id)) AS ledger_id, found.bound_at,
       LOWER(CONVERT(varchar(36), found.journal_id)) AS journal_id,
       LOWER(CONVERT(varchar(36), found.settled_sweep)) AS settled_sweep, found.settled_at, found.place
FROM (
    SELECT CONVERT(uniqueidentifier, NULL) AS journal_id, CONVERT(uniqueidentifier, NULL) AS settled_sweep,
           CONVERT(datetime2(3), NULL) AS settled_at, CONVERT(nvarchar(max), NULL) AS place
) lacking
-- The name of a column that a journal of the first format lacks means the one above.
CROSS APPLY (
    SELECT delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place
    FROM {bindings}
    WHERE source = @source
) found;

-- name: bind
-- Binds a source, which is a delayed table, to a ledger, unless it is bound and was not freed. Locks its place in
-- the table until the transaction ends, so that two sessions cannot both bind it.
UPDATE {bindings} SET ledger_id = @ledger_id
WHERE source = @source AND ledger_id = '00000000-0000-0000-0000-000000000000';
INSERT INTO {bindings} (source, delayed, ledger_id)
SELECT @source, @delayed, @ledger_id
WHERE NOT EXISTS (SELECT 1 FROM {bindings} b WITH (UPDLOCK, HOLDLOCK) WHERE b.source = @source);

-- name: unbind
-- Removes a source's binding to its ledger.
DELETE FROM {bindings} WHERE source = @source;

-- name: free
-- Frees a source from its ledger. The journal's id stays; the ledger is nil until the next sweep binds it.
UPDATE {bindings}
SET ledger_id = '00000000-0000-0000-0000-000000000000', settled_sweep = NULL, settled_at = NULL
WHERE source = @source;

-- name: server_identity
-- Returns what tells this database from one of the same name on another server.
SELECT CONCAT(CONVERT(nvarchar(128), SERVERPROPERTY('ServerName')), N'/', DB_NAME()) AS [identity];

-- name: name_journal
-- Gives a source's journal its id, unless it has one.
UPDATE {bindings} SET journal_id = @journal_id WHERE source = @source AND journal_id IS NULL;

-- name: keep_place
-- Notes where the ledger of a source is. Versions that noted no place noted no sweep either, so a sweep that is noted
-- without one is forgotten. Not in setup: triggers of who created the table would run as the administrator.
UPDATE {bindings}
SET place = @place,
    settled_sweep = CASE WHEN place IS NOT NULL THEN settled_sweep END,
    settled_at = CASE WHEN place IS NOT NULL THEN settled_at END
WHERE source = @source;

-- name: note_settled
-- Notes that the ledger has a sweep or a command. One that has no rows there, or ended before, is not noted.
UPDATE b
SET settled_sweep = s.sweep_id, settled_at = s.closed_at
FROM {bindings} b
JOIN {sweeps} s ON s.source = b.source
WHERE s.sweep_id = @sweep_id
  AND (b.settled_at IS NULL OR b.settled_at <= s.closed_at)
  AND (s.command IS NULL OR EXISTS (SELECT 1 FROM {changes} c WHERE c.sweep_id = s.sweep_id));

-- name: doctor_clock
-- Returns the server's clock in UTC.
SELECT SYSUTCDATETIME() AS now;

-- name: doctor_references
-- Returns the foreign keys by which rows of other tables refer to a table, and keep theirs there from removal. Does
-- not need @schema and @table.
SELECT f.name, OBJECT_NAME(f.parent_object_id) AS [table]
FROM sys.foreign_keys f
WHERE f.referenced_object_id = OBJECT_ID(@name) AND f.delete_referential_action = 0
ORDER BY f.name;

-- name: remove_any
-- Removes some message, due or not; skips rows that others hold.
DELETE TOP (1) FROM {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK);

-- name: doctor_waiting
-- Returns the headers of the messages that are due first, and their destinations if these are a column.
SELECT TOP (CONVERT(int, @most)) m.Headers AS headers, {destination} AS destination
FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.{due} IS NOT NULL
ORDER BY m.{due};
