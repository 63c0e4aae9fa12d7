-- Removes claimed messages by their keys, which are indexed; their locks are held.
DELETE FROM {delayed} WITH (READPAST, ROWLOCK)
WHERE {key} IN (
    SELECT CONVERT({key_type}, k.[value]){collate}
    FROM STRING_SPLIT(CONVERT(nvarchar(max), @keys), CONVERT(nchar(1), @separator)) k
);
