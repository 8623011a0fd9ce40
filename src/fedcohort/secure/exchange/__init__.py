"""The messages of masked sums: what sites and coordinator tell each other, and check."""
