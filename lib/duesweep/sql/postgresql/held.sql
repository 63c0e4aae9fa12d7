-- Held: what operators hold back. Pauses of destinations, and limits of messages a second.

-- name: pause
-- Pauses destinations, or changes a pause. Locks its row.
INSERT INTO {pauses} AS p (source, pattern, until_at, given_by, reason)
VALUES (%(source)s, %(pattern)s, %(until)s::timestamptz, %(given_by)s, %(reason)s)
ON CONFLICT (source, pattern) DO UPDATE SET
    paused_at = excluded.paused_at,
    until_at = excluded.until_at,
    given_by = excluded.given_by,
    reason = excluded.reason;

-- name: resume
-- Ends a pause. Locks its row.
DELETE FROM {pauses} WHERE source = %(source)s AND pattern = %(pattern)s;

-- name: read_pauses
-- Returns the pauses in force, and the server's time. Takes no locks.
SELECT pattern, paused_at, until_at, given_by, reason
FROM {pauses}
WHERE source = %(source)s AND (until_at IS NULL OR until_at > clock_timestamp())
ORDER BY pattern;

-- name: drop_old_pauses
-- Deletes pauses that have ended. Locks their rows.
DELETE FROM {pauses} WHERE source = %(source)s AND until_at <= clock_timestamp();

-- name: reserve
-- Reserves so many seconds of a limit, after those that are reserved already. Returns after how many
-- seconds they begin. Locks the limit's row; waits for others that reserve.
INSERT INTO {limits} AS l (source, pattern, free_at)
VALUES (
    %(source)s, %(pattern)s, clock_timestamp() + %(seconds)s::float8 * interval '1 second'
)
ON CONFLICT (source, pattern) DO UPDATE SET
    free_at = greatest(l.free_at, clock_timestamp()) + %(seconds)s::float8 * interval '1 second'
RETURNING greatest(
    0, extract(epoch FROM free_at - clock_timestamp())::float8 - %(seconds)s::float8
) AS wait_seconds;
