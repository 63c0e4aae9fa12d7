-- Returns what the batches of a sweep did, a row a slice. No locks.
SELECT slice,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint AS failed,
       count(*) FILTER (WHERE kind = 'exhausted') AS exhausted,
       coalesce(sum(body_bytes), 0)::bigint AS bytes,
       coalesce(bool_or(attempts_changed OR kind = 'exhausted'), false) AS attempts_changed
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind <> 'slice'
GROUP BY slice;
