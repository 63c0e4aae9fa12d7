-- Returns the columns of a table in {catalog}, name and type: no row where there is no such table or it
-- is closed to this user. No locks kept.
SELECT c.COLUMN_NAME AS name, c.DATA_TYPE AS type, t.TABLE_TYPE AS kind
FROM {catalog}.INFORMATION_SCHEMA.COLUMNS c
JOIN {catalog}.INFORMATION_SCHEMA.TABLES t
  ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE c.TABLE_SCHEMA = @schema AND c.TABLE_NAME = @table
ORDER BY c.ORDINAL_POSITION;
