-- Counts a failure for a message, whose lock is held: raises its counter, or begins one.
SET NOCOUNT ON;
UPDATE {attempts}
SET attempts = @attempts,
    destination = @destination,
    due_at = CONVERT(datetime2(7), @due, 121),
    last_failed_at = SYSUTCDATETIME(),
    next_attempt_at = DATEADD(
        millisecond, @retry_ms, DATEADD(second, @retry_seconds, SYSUTCDATETIME())
    ),
    error_class = @error_class,
    error_text = @error_text
WHERE source = @source AND message_key = @message_key;
IF @@ROWCOUNT = 0
INSERT INTO {attempts} (
    source, message_key, message_id, destination, due_at, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
) VALUES (
    @source, @message_key, @message_id, @destination, CONVERT(datetime2(7), @due, 121), @attempts,
    SYSUTCDATETIME(), SYSUTCDATETIME(),
    DATEADD(millisecond, @retry_ms, DATEADD(second, @retry_seconds, SYSUTCDATETIME())),
    @error_class, @error_text
);
SET NOCOUNT OFF;
