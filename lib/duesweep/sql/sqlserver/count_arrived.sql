-- Returns how many of these messages have arrived in a queue since a number. Skips what others
-- hold, as other slices do that deliver to it at the same time; keeps no locks.
SELECT COUNT_BIG(*) AS arrived
FROM {queue} q WITH (READPAST)
JOIN OPENJSON(CONVERT(nvarchar(max), @ids)) WITH (id uniqueidentifier '$') i ON i.id = q.Id
WHERE q.RowVersion > @number;
