-- Returns how many of these messages have arrived in a queue since a number. Keeps no locks.
SELECT COUNT_BIG(*) AS arrived
FROM {queue} q
JOIN OPENJSON(CONVERT(nvarchar(max), @ids)) WITH (id uniqueidentifier '$') i ON i.id = q.Id
WHERE q.RowVersion > @number;
