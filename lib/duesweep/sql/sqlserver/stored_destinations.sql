-- Returns where all messages with a Due go, and how many go there; at most 1,000, the commonest first.
-- Skips what others hold; keeps no locks.
SELECT TOP (1000) stored.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT {destination} AS destination
    FROM {delayed} m WITH (READPAST)
    WHERE {destination} <> N'' AND m.{due} IS NOT NULL
) stored
GROUP BY stored.destination
ORDER BY messages DESC, stored.destination;
