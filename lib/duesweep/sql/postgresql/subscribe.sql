-- Subscribes an endpoint to a topic, or moves its subscription to another address. Locks that row.
INSERT INTO {subscriptions} (queueaddress, endpoint, topic)
VALUES (%(queue_address)s, %(endpoint)s, %(topic)s)
ON CONFLICT (endpoint, topic) DO UPDATE SET queueaddress = excluded.queueaddress;
