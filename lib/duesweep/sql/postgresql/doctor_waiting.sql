-- Returns headers and, where it is a column, the destination of the messages that are due first. No locks.
SELECT d.{headers} AS headers, {destination} AS destination
FROM {delayed} d
WHERE d.{due} IS NOT NULL
ORDER BY d.{due}
LIMIT %(most)s::integer;
