-- Returns headers and, where it is a column, the destination of the messages that are due first. Skips
-- what others hold, and keeps no locks.
SELECT TOP (CONVERT(int, @most)) m.Headers AS headers, {destination} AS destination
FROM {delayed} m WITH (READPAST)
WHERE m.{due} IS NOT NULL
ORDER BY m.{due};
