-- Counts a failure for each of these messages that has a counter; the messages' locks are held.
UPDATE a
SET attempts = f.attempts,
    destination = f.destination,
    due = CONVERT(datetime, f.due, 121),
    last_failed_at = SYSUTCDATETIME(),
    next_attempt_at = DATEADD(
        millisecond, f.retry_ms % 1000, DATEADD(second, f.retry_ms / 1000, SYSUTCDATETIME())
    ),
    error_class = f.error_class,
    error_text = f.error_text
FROM {attempts} a
JOIN OPENJSON(@failures) WITH (
    message_key nvarchar(250) '$.message_key', message_id nvarchar(max) '$.message_id',
    destination nvarchar(max) '$.destination', due varchar(23) '$.due', attempts int '$.attempts',
    retry_ms bigint '$.retry_ms', error_class nvarchar(max) '$.error_class',
    error_text nvarchar(max) '$.error_text'
) f ON a.message_key = f.message_key COLLATE DATABASE_DEFAULT
WHERE a.source = @source;
