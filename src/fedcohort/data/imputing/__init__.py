"""Draws of missing values, tables completed by them, and estimates over several tables."""
