"""Metrics and curves of survival, of the rows in one place."""
