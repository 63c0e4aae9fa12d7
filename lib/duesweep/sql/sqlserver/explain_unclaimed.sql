-- Returns what is at these Dues, a row for each: `present` rows, whoever holds them; of known failures
-- other than @excluded, how many are `waiting` for their next attempt, and how many of these have
-- `failed_since` the sweep began. A statement of its own, after the claim. Reads what others have not
-- committed yet; keeps no locks.
SELECT t.due, here.present, failures.waiting, failures.failed_since
FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due') t
CROSS JOIN (SELECT started_at FROM {sweeps} WHERE sweep_id = @sweep_id) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS present
    FROM {delayed} m WITH (NOLOCK)
    WHERE m.{due} = CONVERT(datetime2(7), t.due, 121)
) here
CROSS APPLY (
    SELECT COUNT_BIG(*) AS waiting,
           COUNT_BIG(k.is_new) AS failed_since
    FROM {attempts} a WITH (NOLOCK)
    CROSS APPLY (SELECT CASE WHEN a.last_failed_at >= s.started_at THEN 1 END AS is_new) k
    WHERE a.source = @source AND a.due_at = CONVERT(datetime2(7), t.due, 121)
      AND a.next_attempt_at > SYSUTCDATETIME()
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), @excluded), CONVERT(nchar(1), @separator)) p
        WHERE p.[value] = a.message_key COLLATE DATABASE_DEFAULT
      )
) failures;
