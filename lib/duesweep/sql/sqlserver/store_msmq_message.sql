-- Stores a message until a moment. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, Time, Headers, State)
VALUES (
    @message_key, @destination, CONVERT(datetime, @due, 121), CONVERT(varbinary(max), @headers),
    CONVERT(varbinary(max), @body)
);
