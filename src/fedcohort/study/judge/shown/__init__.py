"""Published rows of clusters and latent variables, from the rows of this process."""
