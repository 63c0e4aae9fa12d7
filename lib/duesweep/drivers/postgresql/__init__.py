"""All use of psycopg."""
