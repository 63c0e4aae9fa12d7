-- Returns how many messages there are. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS stored FROM {delayed} m WITH (READPAST);
