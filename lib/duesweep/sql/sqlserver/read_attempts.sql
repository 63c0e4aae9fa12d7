-- Returns the retry counters of claimed messages. A statement of its own, after the claim: under
-- READ_COMMITTED_SNAPSHOT it has to see what was committed before the locks were had. Skips what others hold: a
-- counter is written only by who holds its message. Keeps no locks.
SELECT a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM STRING_SPLIT(CONVERT(nvarchar(max), @keys), CONVERT(nchar(1), @separator)) k
JOIN {attempts} a WITH (READPAST)
  ON a.source = @source AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;
