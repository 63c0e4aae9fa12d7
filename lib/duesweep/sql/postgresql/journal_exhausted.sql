-- Journals messages out of attempts whole, straight from their (locked) rows.
INSERT INTO {journal} (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due,
    dispatched_at, attempts, first_failed_at, error_class, error_text, stack, headers, body
)
SELECT %(sweep_id)s, %(slice)s, 'exhausted', d.{id}, e.message_id, e.message_type, e.destination, e.queue,
       timestamptz 'epoch' + e.instant_us * interval '1 microsecond', %(dispatched_at)s, e.attempts,
       coalesce(a.first_failed_at, %(dispatched_at)s), e.error_class, e.error_text, e.stack,
       d.{headers}, d.{body}
FROM unnest(
    %(keys)s::uuid[], %(instants_us)s::bigint[], %(message_ids)s::text[], %(message_types)s::text[],
    %(destinations)s::text[], %(queues)s::text[], %(attempts)s::integer[], %(error_classes)s::text[],
    %(error_texts)s::text[], %(stacks)s::text[]
) AS e (
    message_key, instant_us, message_id, message_type, destination, queue, attempts, error_class, error_text,
    stack
)
JOIN {delayed} d ON d.{id} = e.message_key
LEFT JOIN {attempts} a ON a.source = %(source)s AND a.message_key = e.message_key;
