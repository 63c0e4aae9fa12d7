-- Returns the first column of each index of a table that ranges can be looked up in, and whether that
-- index leaves rows out. No locks.
SELECT a.attname AS column_name, i.indpred IS NOT NULL AS is_partial
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND i.indisvalid AND m.amname = 'btree';
