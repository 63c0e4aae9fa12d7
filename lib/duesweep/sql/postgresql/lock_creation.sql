-- Returns nothing of use; waits for an advisory lock that this transaction then holds to its end.
SELECT pg_advisory_xact_lock(%(lock_key)s);
