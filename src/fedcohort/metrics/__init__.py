"""How good a fit is: each metric is a sum over records and a finish, so that it federates."""
