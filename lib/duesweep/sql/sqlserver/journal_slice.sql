-- Journals the end of a slice: complete, or cut for a reason.
INSERT INTO {journal} (sweep_id, slice, kind, planned, reason)
VALUES (@sweep_id, @slice, 'slice', @planned, @reason);
