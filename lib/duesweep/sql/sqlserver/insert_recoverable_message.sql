-- Appends a message to a queue table of the older shape. Locks the new row only.
INSERT INTO {queue} (Id, Recoverable, Headers, Body) VALUES (@id, 1, @headers, @body);
