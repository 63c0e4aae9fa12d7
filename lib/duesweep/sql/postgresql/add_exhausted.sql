-- Adds to the sweep's counts of messages exhausted, and over the limit by the limit; the row is locked.
UPDATE {sweeps} SET exhausted = exhausted + %(exhausted)s, over_limit = over_limit + %(over_limit)s
WHERE sweep_id = %(sweep_id)s;
