-- Returns how many known failures that are not eligible have one of these Dues. Skips what others hold; keeps no
-- locks.
SELECT COUNT_BIG(*) AS waiting
FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due') t
JOIN {attempts} a WITH (READPAST) ON a.due_at = CONVERT(datetime2(7), t.due, 121)
WHERE a.source = @source AND a.next_attempt_at > SYSUTCDATETIME();
