-- Returns the first column of each index of a table in {catalog} that can be used, and whether that index
-- leaves rows out. Not by the indexes' names, which are anybody's. No locks kept.
SELECT c.name AS column_name, MAX(CASE WHEN i.has_filter = 1 THEN 1 ELSE 0 END) AS is_partial
FROM {catalog}.sys.indexes i
JOIN {catalog}.sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN {catalog}.sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = OBJECT_ID(@name) AND i.is_disabled = 0 AND ic.key_ordinal = 1 AND i.type IN (1, 2)
GROUP BY i.index_id, c.name;
