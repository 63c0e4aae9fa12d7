-- Due times, texts, counts and names.

-- fact: Does each of the 300 ticks of a second come back from its text as the same tick?
-- answer: 300 ticks, 0 changed
-- A
SELECT CONCAT(COUNT(DISTINCT t.tick), ' ticks, ', SUM(
    CASE WHEN t.tick = CAST(CONVERT(datetime2(7), CAST(CONVERT(datetime2(7), t.tick) AS varchar(27)), 121)
                            AS datetime) THEN 0 ELSE 1 END), ' changed')
FROM (SELECT DATEADD(millisecond, n.[value], CAST('20260101' AS datetime)) AS tick
      FROM (SELECT a.[value] + 10 * b.[value] + 100 * c.[value] AS [value]
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) a ([value])
            CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) b ([value])
            CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) c ([value])) n) t;

-- fact: What text has a tick that is no whole millisecond?
-- answer: 2026-01-01 00:00:00.0033333
-- A
SELECT CAST(CONVERT(datetime2(7), CAST('2026-01-01 00:00:00.003' AS datetime)) AS varchar(27));

-- fact: How many characters has a character beyond U+FFFF for LEN, and how many bytes are its first one for LEFT?
-- answer: 2; 2
-- A
SELECT CONCAT(LEN(c.text), '; ', DATALENGTH(LEFT(c.text, 1)))
FROM (SELECT NCHAR(0xD83D) + NCHAR(0xDE00) AS text) c;

-- fact: Does HAS_PERMS_BY_NAME take a name of more than 128 characters?
-- answer: *
-- A
SELECT COALESCE(CONVERT(varchar(4), HAS_PERMS_BY_NAME(
    QUOTENAME(DB_NAME()) + N'.[dbo].' + QUOTENAME(REPLICATE(N'x', 120)), N'OBJECT', N'SELECT')), 'NULL');

-- fact: Does HAS_PERMS_BY_NAME take a name of two parts?
-- answer: 1
-- A
SELECT HAS_PERMS_BY_NAME(N'[dbo].[delayed]', N'OBJECT', N'DELETE');

-- fact: Which collation have the texts that OPENJSON returns?
-- answer: *
-- A
SELECT SQL_VARIANT_PROPERTY(CONVERT(nvarchar(10), j.name), 'Collation')
FROM OPENJSON(N'[{"n":"a"}]') WITH (name nvarchar(10) '$.n') j;

-- fact: Do names of keys that differ in their case only meet each other in a list?
-- answer: 1
-- answer (case-sensitive): 0
-- A
SELECT COUNT(*) FROM STRING_SPLIT(N'KEY|other', N'|') k WHERE k.[value] COLLATE DATABASE_DEFAULT = N'key';

-- fact: Is the database found by its name in sys.databases?
-- answer: 1
-- A
SELECT COUNT(*) FROM sys.databases d WHERE d.name = DB_NAME();
