-- Appends a message to a queue table. Locks the new row only.
INSERT INTO {queue} (Id, Headers, Body) VALUES (@id, @headers, @body);
