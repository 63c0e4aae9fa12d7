-- Returns whether retry counters of messages that are gone are still kept. No locks.
SELECT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = a.message_key)
) AS found;
