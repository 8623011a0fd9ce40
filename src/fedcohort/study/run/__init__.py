"""Runs a study: its fits, tuning and optional analyses, in this process or over a network."""
