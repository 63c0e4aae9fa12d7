-- Deletes a bounded number of the journal rows of a settled sweep.
DELETE TOP (1000) FROM {journal} WHERE sweep_id = @sweep_id;
