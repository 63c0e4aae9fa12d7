-- Returns the elements of a JSON array, joined by commas: what the statements of a sweep take of a server's
-- version and of its database's compatibility level.
SELECT STRING_AGG(j.[value], N',') AS joined FROM OPENJSON(@numbers) j;
