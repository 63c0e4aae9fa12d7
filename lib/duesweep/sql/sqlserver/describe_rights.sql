-- Returns which of these rights on a table the session has: 1, 0, or NULL where there is no such table.
SELECT r.[value] AS name, HAS_PERMS_BY_NAME(@name, 'OBJECT', r.[value]) AS is_granted
FROM STRING_SPLIT(@rights, ',') r;
