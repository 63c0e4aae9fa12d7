-- Returns a closed sweep: how it was planned and closed. No locks kept.
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason
FROM {sweeps}
WHERE sweep_id = @sweep_id;
