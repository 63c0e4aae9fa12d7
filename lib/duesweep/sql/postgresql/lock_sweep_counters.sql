-- Returns how many messages the sweep has exhausted; locked, so that its slices count one by one.
SELECT exhausted FROM {sweeps} WHERE sweep_id = %(sweep_id)s FOR NO KEY UPDATE;
