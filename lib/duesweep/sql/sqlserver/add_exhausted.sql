-- Adds to the sweep's counts of messages exhausted, and over the limit by the limit; its slices take turns.
UPDATE {sweeps} SET exhausted = exhausted + @exhausted, over_limit = over_limit + @over_limit
WHERE sweep_id = @sweep_id;
