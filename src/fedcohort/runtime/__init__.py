"""Runtimes: what carries a coordinator's calls to its sites. None knows an algorithm."""
