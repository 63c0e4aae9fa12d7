-- Stores a timeout until a moment, as SQL persistence does. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, SagaId, State, Time, Headers, PersistenceVersion)
VALUES (
    CONVERT(uniqueidentifier, @message_key), @destination, CONVERT(uniqueidentifier, @saga_id),
    CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121), @headers, @version
);
