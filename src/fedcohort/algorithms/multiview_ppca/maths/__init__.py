"""Multi-view probabilistic PCA of one site: EM on sums, latent space, draws of parameters."""
