-- Returns the addresses that subscribe to a topic, each once. No locks kept.
SELECT DISTINCT QueueAddress AS queue_address FROM {subscriptions} WHERE Topic = @topic;
