-- Returns the earliest Due that is stored, NULL where there is none. Skips what others hold; keeps no
-- locks.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), MIN(d.{due})), 121) AS due FROM {delayed} d WITH (READPAST);
