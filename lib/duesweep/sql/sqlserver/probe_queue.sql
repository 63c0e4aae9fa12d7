-- Inserts nothing: an error says whether a queue table is missing or closed to this user.
INSERT INTO {queue} (Id, Headers) SELECT NEWID(), N'' WHERE 1 = 0;
