-- Unsubscribes an endpoint from a topic. Locks that row.
DELETE FROM {subscriptions} WITH (ROWLOCK) WHERE Endpoint = @endpoint AND Topic = @topic;
