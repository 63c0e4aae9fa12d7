-- Questions to SQL Server's own views, after sweeps.

-- name: escalations
SELECT SUM(s.index_lock_promotion_count) AS escalations
FROM sys.dm_db_index_operational_stats(DB_ID(), OBJECT_ID(?), NULL, NULL) s;

-- name: plans
SELECT t.[text] AS text, CONVERT(nvarchar(max), p.query_plan) AS plan_xml
FROM sys.dm_exec_cached_plans c
CROSS APPLY sys.dm_exec_sql_text(c.plan_handle) t
CROSS APPLY sys.dm_exec_query_plan(c.plan_handle) p
WHERE t.[text] LIKE ? AND c.cacheobjtype = 'Compiled Plan' AND c.objtype = 'Prepared';
