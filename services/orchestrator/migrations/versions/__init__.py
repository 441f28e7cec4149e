"""Migrations in order."""
