-- Returns what is in a JSON array: an error where the database is too old to read JSON.
SELECT j.[value] FROM OPENJSON(@values) j;
