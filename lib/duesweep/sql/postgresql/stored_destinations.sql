-- Returns where all messages with a Due go, and how many go there; at most 1,000, the commonest first.
-- No locks.
SELECT {destination} AS destination, count(*) AS messages
FROM {delayed} d
WHERE {destination} <> '' AND d.{due} IS NOT NULL
GROUP BY {destination}
ORDER BY messages DESC, destination
LIMIT 1000;
