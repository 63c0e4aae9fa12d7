-- Notes how many messages each slice was planned with, as a JSON array.
UPDATE {sweeps} SET planned = @planned WHERE sweep_id = @sweep_id AND closed_at IS NULL;
