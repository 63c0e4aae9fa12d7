-- Adds the column in which people can read bodies, unless it is there; rewrites the table under an
-- exclusive lock.
ALTER TABLE {queue} ADD COLUMN IF NOT EXISTS bodystring text
    GENERATED ALWAYS AS (encode(body, 'escape')) STORED;
