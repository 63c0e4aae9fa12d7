-- Journals the end of a slice: its account, and why it was cut, if it was.
INSERT INTO {journal} (sweep_id, slice, kind, given, claimed, skipped, gone, later, "left", reason)
VALUES (
    %(sweep_id)s, %(slice)s, 'slice', %(given)s, %(claimed)s, %(skipped)s, %(gone)s, %(later)s, %(left)s,
    %(reason)s
);
