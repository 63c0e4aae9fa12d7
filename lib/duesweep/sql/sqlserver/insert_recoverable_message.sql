-- Appends a message to a queue table of the older shape. Locks the new row only.
INSERT INTO {queue} (Id, Recoverable, Headers, Body) VALUES (NEWID(), 1, @headers, @body);
