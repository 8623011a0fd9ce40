"""What is refused in fits with and without effects of sites."""

from __future__ import annotations

from fedcohort.protocol import NothingToLearn

#: What helps where few records count for nearly all.
OUTLYING = "Look for values far from all others, or give a smaller prior_scale."


def no_variance() -> NothingToLearn:
    """Return the error of a residual variance without a proper posterior."""
    return NothingToLearn(
        "the outcome is the same in all records, or the covariates predict it without any "
        "error, so that its variance has no proper posterior. Drop the covariate that is the "
        "outcome itself, or give noise_shape and noise_rate above 0."
    )
