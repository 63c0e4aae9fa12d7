-- Deletes a settled sweep, after its journal rows.
DELETE FROM {sweeps} WHERE sweep_id = @sweep_id;
