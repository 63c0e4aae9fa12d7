-- Unsubscribes an endpoint from a topic. Locks that row.
DELETE FROM {subscriptions} WHERE endpoint = %(endpoint)s AND topic = %(topic)s;
