"""Federated optimisation of any torch model, on flat parameter vectors."""
