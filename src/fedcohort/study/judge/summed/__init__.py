"""Metrics and pictures from sums over sites, where rows stay at their hospitals."""
