-- Creates a queue table as the transport does.
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid NOT NULL PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq serial NOT NULL UNIQUE
);
