"""Multi-view probabilistic PCA at one place: EM on sums, latent space, draws of parameters."""
