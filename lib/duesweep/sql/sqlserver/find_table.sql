-- Returns whether there is a table of this quoted name.
SELECT CASE WHEN OBJECT_ID(@name, 'U') IS NULL THEN 0 ELSE 1 END AS found;
