"""From a study file, or a notebook, to fitted models and their evaluation.

Methods are known here by the catalogue only.
"""
