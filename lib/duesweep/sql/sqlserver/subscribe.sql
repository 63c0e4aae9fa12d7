-- Subscribes an endpoint to a topic, or moves its subscription to another address. To be run in a
-- transaction: locks that row, or where there is none the gap in which it will be.
DECLARE @Address nvarchar(200) = @queue_address, @Endpoint nvarchar(200) = @endpoint,
    @Topic nvarchar(200) = @topic;
UPDATE {subscriptions} WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) SET QueueAddress = @Address
WHERE Endpoint = @Endpoint AND Topic = @Topic;
IF @@ROWCOUNT = 0
    INSERT INTO {subscriptions} (QueueAddress, Endpoint, Topic)
    VALUES (@Address, @Endpoint, @Topic);
