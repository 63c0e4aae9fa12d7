"""For each value of `operations/` what a person reads of it, as blocks (`report/text`)."""
