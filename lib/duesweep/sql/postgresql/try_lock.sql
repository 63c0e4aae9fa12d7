-- Returns whether the session now holds this advisory lock; never waits.
SELECT pg_try_advisory_lock(%(lock_key)s) AS locked;
