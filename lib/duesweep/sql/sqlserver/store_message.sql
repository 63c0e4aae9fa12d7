-- Stores a message until a moment; returns its key. Locks the new row only.
INSERT INTO {delayed} (Headers, Body, Due)
OUTPUT inserted.RowVersion AS message_key
VALUES (@headers, CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121));
