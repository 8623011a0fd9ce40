"""What a report shows of clusters and latent coordinates, from the rows of this process."""
