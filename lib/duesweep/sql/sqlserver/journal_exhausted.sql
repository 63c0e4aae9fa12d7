-- Journals a message out of attempts, whole.
INSERT INTO {journal} (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due_us,
    dispatched_us, attempts, first_failed_us, error_class, error_text, stack, headers, headers_text,
    body
)
SELECT @sweep_id, @slice, 'exhausted', @message_key, @message_id, @message_type, @destination, @queue,
       @due_us, @dispatched_us, @attempts,
       COALESCE((
           SELECT DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at)
           FROM {attempts} a
           WHERE a.source = @source AND a.message_key = @message_key
       ), @dispatched_us),
       @error_class, @error_text, @stack, @headers, @headers_text, CONVERT(varbinary(max), @body);
