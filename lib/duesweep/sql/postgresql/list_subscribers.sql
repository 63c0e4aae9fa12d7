-- Returns the addresses that subscribe to a topic, each once. No locks.
SELECT DISTINCT queueaddress AS queue_address FROM {subscriptions} WHERE topic = %(topic)s;
