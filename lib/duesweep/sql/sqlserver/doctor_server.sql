-- Returns the server's version, how this database isolates readers from writers, its compatibility level,
-- this user, and how many minutes the server's own clock is ahead of UTC. No locks kept.
SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, DB_NAME() AS database_name,
       d.compatibility_level, d.is_read_committed_snapshot_on AS is_read_committed_snapshot,
       d.snapshot_isolation_state_desc AS snapshot_isolation, USER_NAME() AS grantee,
       DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS minutes_ahead
FROM sys.databases d
WHERE d.database_id = DB_ID();
