"""The parties of a network: their kits, and how each knows the others."""
