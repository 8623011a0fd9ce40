"""Decision trees as arrays: their nodes, their growth from sums, and what each covariate adds."""
