"""k-means over sites: start, rounds, and the number of clusters."""
