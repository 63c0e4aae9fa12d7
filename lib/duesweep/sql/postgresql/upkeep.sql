-- Upkeep: sources whose endpoints are gone. `unbind` (setup.sql) removes the last of their rows.

-- name: dropped_sources
-- Returns the sources whose delayed table does not exist any more, with the number of their sweeps and
-- commands that are not settled. Takes no locks on rows.
SELECT b.source, b.delayed, (SELECT count(*) FROM {sweeps} s WHERE s.source = b.source) AS unsettled
FROM {bindings} b
WHERE to_regclass(b.delayed) IS NULL
ORDER BY b.source;

-- name: forget_attempts
-- Deletes all retry counters of a source. Locks these rows.
DELETE FROM {attempts} WHERE source = %(source)s;

-- name: forget_pauses
-- Deletes all pauses of a source. Locks these rows.
DELETE FROM {pauses} WHERE source = %(source)s;

-- name: forget_limits
-- Deletes what is reserved of a source's limits. Locks these rows.
DELETE FROM {limits} WHERE source = %(source)s;
