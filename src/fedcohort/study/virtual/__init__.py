"""Virtual patients: rows drawn from a model, and their comparison with real rows."""

from fedcohort.study.virtual.drawing import CHUNK, Drawing, outcome_of

__all__ = ["CHUNK", "Drawing", "outcome_of"]
