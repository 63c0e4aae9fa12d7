"""What the tests of the transports' operations share, on both servers."""
