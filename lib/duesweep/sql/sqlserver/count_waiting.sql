-- Returns how many known failures that are not ripe lie in a span of Due. No locks kept.
SELECT COUNT_BIG(*) AS waiting
FROM {attempts} a
WHERE a.source = @source AND a.next_attempt_at > SYSUTCDATETIME()
  AND a.due >= CONVERT(datetime, @first, 121) AND a.due <= CONVERT(datetime, @last, 121);
