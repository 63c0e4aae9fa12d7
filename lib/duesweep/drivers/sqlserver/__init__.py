"""All use of pyodbc."""
