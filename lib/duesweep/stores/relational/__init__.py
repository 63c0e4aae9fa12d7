"""What stores in relational databases share: the journal beside the delayed table."""
