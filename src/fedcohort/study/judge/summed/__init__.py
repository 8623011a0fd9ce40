"""Metrics and published rows from sums over sites; rows stay at their hospitals."""
