-- Returns about how many messages nobody holds, up to a batch: from the numbers of the first and the
-- last, gaps included. Skips locked rows; locks two, so that receivers skip those, until it ends.
SELECT least(coalesce(
    (SELECT seq FROM {queue} ORDER BY seq DESC LIMIT 1 FOR KEY SHARE SKIP LOCKED)
    - (SELECT seq FROM {queue} ORDER BY seq LIMIT 1 FOR KEY SHARE SKIP LOCKED) + 1, 0
), %(batch)s) AS messages;
