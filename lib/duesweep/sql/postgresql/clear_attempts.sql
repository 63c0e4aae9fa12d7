-- Drops the retry counters of messages that leave; the messages' locks are held.
DELETE FROM {attempts} WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);
