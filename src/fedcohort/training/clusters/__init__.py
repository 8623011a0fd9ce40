"""k-means over sites: where it starts, its rounds, and how many clusters there are."""
