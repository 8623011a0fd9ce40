"""Judges fits on blind rows: pooled rows of this process, or sums over sites."""
