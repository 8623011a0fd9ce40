"""Runtimes: transports of a coordinator's calls to its sites. None knows an algorithm."""
