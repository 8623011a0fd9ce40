"""Metrics of fits: each is a sum over records and a final formula, so that it federates."""
