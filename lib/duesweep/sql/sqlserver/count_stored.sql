-- Returns how many messages there are. What others hold counts, too; no locks.
SELECT COUNT_BIG(*) AS stored FROM {delayed} m WITH (NOLOCK);
