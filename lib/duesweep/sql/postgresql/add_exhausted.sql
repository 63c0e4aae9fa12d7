-- Adds to the sweep's counts of messages exhausted, and held back by the limit; the row is locked.
UPDATE {sweeps} SET exhausted = exhausted + %(exhausted)s, held_back = held_back + %(held_back)s
WHERE sweep_id = %(sweep_id)s;
