"""Rows in and out of tables."""
