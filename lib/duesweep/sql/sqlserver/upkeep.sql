-- Upkeep: sources whose endpoints are gone. `unbind` (setup.sql) removes the last of their rows.

-- name: dropped_sources
-- Returns the sources whose delayed table does not exist any more, with the number of their sweeps and
-- commands that are not settled. Keeps no locks.
SELECT b.source, b.delayed, (SELECT COUNT(*) FROM {sweeps} s WHERE s.source = b.source) AS unsettled
FROM {bindings} b
WHERE OBJECT_ID(b.delayed, 'U') IS NULL
ORDER BY b.source;

-- name: forget_attempts
-- Deletes retry counters of a source, at most 1,000 at a time: fewer than make SQL Server lock the whole
-- table. Locks these rows.
DELETE TOP (1000) FROM {attempts} WHERE source = @source;

-- name: forget_pauses
-- Deletes all pauses of a source. Locks these rows.
DELETE FROM {pauses} WHERE source = @source;

-- name: forget_limits
-- Deletes what is reserved of a source's limits. Locks these rows.
DELETE FROM {limits} WHERE source = @source;
