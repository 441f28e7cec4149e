"""The orchestrator's database, SQLite or PostgreSQL by URL, through SQLAlchemy Core."""
