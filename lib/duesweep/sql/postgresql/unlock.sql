-- Releases an advisory lock that the session holds.
SELECT pg_advisory_unlock(%(lock_key)s) AS unlocked;
