-- Returns when locks on the rows of a table in {catalog} become one on the table: no row where it is not to
-- be seen. No locks kept.
SELECT t.lock_escalation_desc AS lock_escalation FROM {catalog}.sys.tables t WHERE t.object_id = OBJECT_ID(@name);
