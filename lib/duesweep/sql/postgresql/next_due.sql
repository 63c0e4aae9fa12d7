-- Returns the earliest Due that is stored, NULL where there is none. No locks.
SELECT min(d.{due}){utc} AS due FROM {delayed} d WHERE isfinite(d.{due});
