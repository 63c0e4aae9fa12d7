-- Returns how many messages there are. No locks.
SELECT count(*) AS stored FROM {delayed};
