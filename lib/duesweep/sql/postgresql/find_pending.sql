-- Returns whether a message is eligible. No locks.
SELECT EXISTS (
    SELECT FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc}
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
) AS found;
