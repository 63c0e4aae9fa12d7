-- Returns how many messages are eligible. No locks.
SELECT count(*) AS pending
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
  AND NOT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
  );
