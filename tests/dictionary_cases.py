"""Data dictionaries of every shape, for the tests of their formats."""

from __future__ import annotations

from hypothesis import strategies as st

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.variable import DURATIONS, RANGED
from fedcohort.data.words import level_text

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
NAMES = TEXT.filter(lambda s: s and s not in ("variables", "title", "description", "licence"))
CODES = st.one_of(
    st.integers(-9999, 9999), st.floats(-1e6, 1e6), TEXT.filter(bool), st.sampled_from(["no", "1"])
)
NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e9, 1e9))


@st.composite
def ranges(draw):
    low, high = sorted(draw(st.lists(NUMBERS, min_size=2, max_size=2, unique_by=float)))
    return [draw(st.sampled_from([low, None])), draw(st.sampled_from([high, None]))]


@st.composite
def specs(draw, kinds):
    """Return what a dictionary file may say of a variable."""
    kind = draw(st.sampled_from(kinds))
    spec = {"type": kind, "unit": draw(TEXT), "description": draw(TEXT), "view": draw(TEXT)}
    spec["missing"] = draw(st.lists(CODES, max_size=3))
    taken = {level_text(v) for v in spec["missing"]}
    if kind in ("category", "binary"):
        fresh = CODES.filter(lambda v: level_text(v) not in taken)
        n = (1, 4) if kind == "category" else (2, 2)
        spec["levels"] = draw(st.lists(fresh, min_size=n[0], max_size=n[1], unique_by=level_text))
    if kind in RANGED and draw(st.booleans()):
        spec["range"] = draw(ranges())
    if kind == "date" and draw(st.booleans()):
        spec |= {"since": "2015-01-31", "unit": draw(st.sampled_from(sorted(DURATIONS)))}
        spec["range"] = draw(ranges())
    spec["feature"] = draw(st.booleans())
    if kind not in ("time", "event"):
        spec["identifier"] = draw(st.booleans())
    return spec


PLAIN = ("number", "integer", "binary", "category", "date", "text")


@st.composite
def dictionaries(draw):
    """Return a dictionary with every type of variable, with and without a survival outcome."""
    variables = draw(st.dictionaries(NAMES, specs(PLAIN), min_size=1, max_size=5))
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, min_size=2, max_size=2, unique=True))
        variables |= {n: draw(specs((k,))) for n, k in zip(names, ("time", "event"), strict=True)}
    head = {k: draw(TEXT).strip() for k in ("title", "description", "licence")}
    return Dictionary.from_dict({**head, "variables": variables})
