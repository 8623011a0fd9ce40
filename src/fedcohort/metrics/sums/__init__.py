"""Metrics as sums over sites: steps at a site, and programs that finish."""
