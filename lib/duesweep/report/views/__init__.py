"""For each value of `operations/` its output for people, as blocks (`report/text`)."""
