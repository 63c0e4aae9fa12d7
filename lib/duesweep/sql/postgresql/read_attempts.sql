-- Returns the retry counters of claimed messages. A statement of its own, after the claim: its
-- snapshot must be younger than the locks. No locks.
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM {attempts}
WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);
