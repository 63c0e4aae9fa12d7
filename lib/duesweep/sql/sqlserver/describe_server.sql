-- Returns whether the server deletes from table expressions: SQL Server does, Babelfish does not.
SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS deletes_expressions;
