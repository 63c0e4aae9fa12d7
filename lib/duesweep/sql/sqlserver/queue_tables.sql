-- Returns all tables of the database that have the columns of a queue table, and whether they are of
-- the older shape, with Recoverable. No locks kept.
SELECT c.TABLE_SCHEMA AS [schema], c.TABLE_NAME AS [table],
       MAX(CASE WHEN c.COLUMN_NAME = 'Recoverable' THEN 1 ELSE 0 END) AS has_recoverable
FROM INFORMATION_SCHEMA.COLUMNS c
JOIN INFORMATION_SCHEMA.TABLES t
  ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME AND t.TABLE_TYPE = 'BASE TABLE'
GROUP BY c.TABLE_SCHEMA, c.TABLE_NAME
HAVING COUNT(CASE
    WHEN c.COLUMN_NAME = 'Id' AND c.DATA_TYPE = 'uniqueidentifier' THEN 1
    WHEN c.COLUMN_NAME = 'Headers' AND c.DATA_TYPE IN ('nvarchar', 'varchar') THEN 1
    WHEN c.COLUMN_NAME = 'Body' AND c.DATA_TYPE = 'varbinary' THEN 1
    WHEN c.COLUMN_NAME IN ('Expires', 'RowVersion') THEN 1
END) = 5;
