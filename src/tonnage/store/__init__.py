"""The benchmark database: SQLite by default, PostgreSQL by URL."""
