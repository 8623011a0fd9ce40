"""Federated learning for clinical cohorts."""

__version__ = "0.1.0"
