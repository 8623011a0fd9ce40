"""Linear models from sums over sites."""
