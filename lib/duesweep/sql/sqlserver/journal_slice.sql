-- Journals the end of a slice: its account, and why it was cut, if it was.
INSERT INTO {journal} (sweep_id, slice, kind, given, claimed, skipped, gone, later, [left], reason)
VALUES (@sweep_id, @slice, 'slice', @given, @claimed, @skipped, @gone, @later, @left, @reason);
