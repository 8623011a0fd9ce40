"""Federated gradient boosting of trees."""
