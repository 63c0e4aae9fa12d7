-- Counts the first failure of each of these messages that has no counter; the messages' locks are
-- held.
INSERT INTO {attempts} (
    source, message_key, message_id, destination, due, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
)
SELECT @source, f.message_key, f.message_id, f.destination, CONVERT(datetime, f.due, 121), f.attempts,
       SYSUTCDATETIME(), SYSUTCDATETIME(),
       DATEADD(millisecond, f.retry_ms % 1000, DATEADD(second, f.retry_ms / 1000, SYSUTCDATETIME())),
       f.error_class, f.error_text
FROM OPENJSON(@failures) WITH (
    message_key nvarchar(250) '$.message_key', message_id nvarchar(max) '$.message_id',
    destination nvarchar(max) '$.destination', due varchar(23) '$.due', attempts int '$.attempts',
    retry_ms bigint '$.retry_ms', error_class nvarchar(max) '$.error_class',
    error_text nvarchar(max) '$.error_text'
) f
WHERE NOT EXISTS (
    SELECT 1 FROM {attempts} a
    WHERE a.source = @source AND a.message_key = f.message_key COLLATE DATABASE_DEFAULT
);
