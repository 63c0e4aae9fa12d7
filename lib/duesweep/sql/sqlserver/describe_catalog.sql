-- Returns whether there is such a database, and whether this login gets in.
SELECT CASE WHEN DB_ID(@catalog) IS NULL THEN 0 ELSE 1 END AS found,
       COALESCE(HAS_DBACCESS(@catalog), 0) AS is_open;
