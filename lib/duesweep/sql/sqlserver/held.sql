-- Held: what operators hold back. Pauses of destinations, and limits of messages a second.

-- name: pause
-- Pauses destinations, or changes a pause. Locks its row, and waits for others that pause the same.
UPDATE {pauses} WITH (UPDLOCK, HOLDLOCK)
SET paused_at = SYSUTCDATETIME(), until_at = CONVERT(datetime2(3), @until, 121), given_by = @given_by,
    reason = @reason
WHERE source = @source AND pattern = @pattern;
INSERT INTO {pauses} (source, pattern, until_at, given_by, reason)
SELECT @source, @pattern, CONVERT(datetime2(3), @until, 121), @given_by, @reason
WHERE NOT EXISTS (
    SELECT 1 FROM {pauses} p WITH (UPDLOCK, HOLDLOCK) WHERE p.source = @source AND p.pattern = @pattern
);

-- name: resume
-- Ends a pause. Locks its row.
DELETE FROM {pauses} WHERE source = @source AND pattern = @pattern;

-- name: read_pauses
-- Returns the pauses in force. Takes no locks and waits for nobody. Reads what is not committed yet,
-- because a pause that is being changed is in force before and after it.
SELECT p.pattern, p.paused_at, p.until_at, p.given_by, p.reason
FROM {pauses} p WITH (NOLOCK)
WHERE p.source = @source AND (p.until_at IS NULL OR p.until_at > SYSUTCDATETIME())
ORDER BY p.pattern;

-- name: drop_old_pauses
-- Deletes pauses that have ended. Locks their rows; skips rows that others hold.
DELETE p FROM {pauses} p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.source = @source AND p.until_at <= SYSUTCDATETIME();

-- name: reserve
-- Reserves so many seconds of a limit, after those that are reserved already. Returns after how
-- many seconds they begin. Locks the limit's row until this transaction ends; waits for others that
-- reserve.
DECLARE @Now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
DECLARE @Length bigint = CONVERT(bigint, CONVERT(float, @seconds) * 1000000);
INSERT INTO {limits} (source, pattern, free_us)
SELECT @source, @pattern, @Now
WHERE NOT EXISTS (
    SELECT 1 FROM {limits} l WITH (UPDLOCK, HOLDLOCK) WHERE l.source = @source AND l.pattern = @pattern
);
UPDATE {limits} WITH (UPDLOCK)
SET free_us = CASE WHEN free_us > @Now THEN free_us ELSE @Now END + @Length
WHERE source = @source AND pattern = @pattern;
SELECT CASE WHEN l.free_us - @Length > @Now THEN (l.free_us - @Length - @Now) / 1000000.0 ELSE 0.0 END
           AS wait_seconds
FROM {limits} l
WHERE l.source = @source AND l.pattern = @pattern;
