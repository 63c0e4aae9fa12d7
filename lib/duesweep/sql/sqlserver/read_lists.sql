-- Returns what is in a list and in a JSON array: an error where the database is too old to read them.
SELECT s.[value] FROM STRING_SPLIT(@words, ',') s
UNION ALL
SELECT j.[value] FROM OPENJSON(@numbers) j;
