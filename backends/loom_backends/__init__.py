"""Reference backends: memory, SQLite and PostgreSQL, each as any author would write it."""
