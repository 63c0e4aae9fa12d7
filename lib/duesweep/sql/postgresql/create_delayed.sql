-- Creates the delayed table as the transport does; {index} is its index on Due.
CREATE TABLE IF NOT EXISTS {delayed} (
    id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    headers text NOT NULL,
    body bytea,
    due timestamptz NOT NULL
) WITH (fillfactor=100);
CREATE INDEX IF NOT EXISTS {index} ON {delayed} (due);
