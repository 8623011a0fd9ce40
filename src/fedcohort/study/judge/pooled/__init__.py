"""Judges of predictions on pooled blind rows, one module for each kind of task."""
