-- Returns how many minutes a time zone is ahead of UTC in the coming year, at the least and at the most.
SELECT min(minutes) AS least, max(minutes) AS most
FROM (
    SELECT (EXTRACT(EPOCH FROM (moment AT TIME ZONE %(zone)s) - (moment AT TIME ZONE 'UTC')) / 60)::integer AS minutes
    FROM generate_series(now(), now() + interval '1 year', interval '1 month') AS moment
) AS offsets;
