-- Stores a timeout until an instant, as SQL persistence does: its Time is UTC's clock. Locks the new
-- row only.
INSERT INTO {delayed} (
    "Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"
)
VALUES (
    %(message_key)s::uuid, %(destination)s, %(saga_id)s::uuid, %(body)s,
    %(due)s::timestamptz AT TIME ZONE 'UTC', %(headers)s, %(version)s
);
