"""The report: one page of HTML about what was swept, what waits, and what needs a hand."""
