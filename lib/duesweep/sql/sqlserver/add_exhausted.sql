-- Adds to the sweep's counts of messages exhausted, and held back by the limit; its slices take turns.
UPDATE {sweeps} SET exhausted = exhausted + @exhausted, held_back = held_back + @held_back
WHERE sweep_id = @sweep_id;
