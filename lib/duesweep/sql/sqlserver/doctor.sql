-- Doctor: what the command `doctor` asks the server. Nothing here changes anything.

-- name: doctor_server
-- Returns the server's version, the database's name, isolation of readers from writers and
-- compatibility level, this user, and how many minutes the server's clock is ahead of UTC. Keeps no
-- locks.
SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, DB_NAME() AS database_name,
       d.compatibility_level, d.is_read_committed_snapshot_on AS is_read_committed_snapshot,
       d.snapshot_isolation_state_desc AS snapshot_isolation, USER_NAME() AS grantee,
       DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS minutes_ahead
FROM sys.databases d
WHERE d.database_id = DB_ID();

-- name: doctor_clock
-- Returns the server's clock in UTC.
SELECT SYSUTCDATETIME() AS now;

-- name: doctor_json
-- Returns the elements of a JSON array, joined by commas. Fails if the server's version or the
-- database's compatibility level is too old for the statements of a sweep.
SELECT STRING_AGG(j.[value], N',') AS joined FROM OPENJSON(@numbers) j;

-- name: doctor_right
-- Returns whether the session has a right on a table: 1, 0, or NULL if the table does not exist.
-- Asks for one right, unlike `describe_rights`, so that a database that cannot read lists can
-- answer too.
SELECT HAS_PERMS_BY_NAME(@name, 'OBJECT', @right) AS is_granted;

-- name: doctor_lock_escalation
-- Returns when locks on rows of a table become one lock on the table. No row: this user may not see
-- the table. Keeps no locks.
SELECT t.lock_escalation_desc AS lock_escalation FROM {catalog}.sys.tables t WHERE t.object_id = OBJECT_ID(@name);

-- name: doctor_waiting
-- Returns the headers of the messages that are due first, and their destinations if these are a
-- column. Skips rows that others hold; keeps no locks.
SELECT TOP (CONVERT(int, @most)) m.Headers AS headers, {destination} AS destination
FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.{due} IS NOT NULL
ORDER BY m.{due};
