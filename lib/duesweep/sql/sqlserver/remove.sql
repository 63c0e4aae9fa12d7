-- Removes claimed messages by their keys, which takes a look at every message of their span of Due; the
-- messages' locks are held, others' are passed by.
DELETE d
FROM {delayed} d WITH (READPAST, ROWLOCK)
WHERE d.{due} >= CONVERT(datetime2(7), @first, 121) AND d.{due} <= CONVERT(datetime2(7), @last, 121)
  AND d.{key} IN (
    SELECT CONVERT({key_type}, k.[value]) FROM STRING_SPLIT(@keys, @separator) k
  );
