"""One data dictionary from the drafts of several sites.

Types      integer and number give number; binary and integer give integer; binary and category
           give category; of types that do not fit together, the commonest is taken
Levels     those of all sites; missing codes too, and a missing code is no level
Units      the commonest
Ranges     from the lowest end to the highest
Flags      identifier, and no feature, if one site says so; also no feature if a site lacks the
           column, or if its name suggests that it is known too late

A *conflict* is for the sites to settle: types that do not fit together, two units, ranges or
levels with nothing in common, two spellings of one name, two outcomes. Every other difference is a
note for a person to read. The result shows what the drafts show, and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.read import hints
from fedcohort.data.variable import RANGED
from fedcohort.data.words import first_of, sorted_levels

#: A draft's description of a column without values, whose type is unknown.
EMPTY = "no values"
#: A line names this many sites and counts the others.
NAMED = 3
#: Types that fit together, and the merged type; binary without levels is 0 and 1.
_TOGETHER: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"integer", "number"}), "number"),
    (frozenset({"binary", "integer"}), "integer"),
    (frozenset({"binary", "number"}), "number"),
    (frozenset({"binary", "integer", "number"}), "number"),
    (frozenset({"binary", "category"}), "category"),
    (frozenset({"time", "integer"}), "time"),
    (frozenset({"time", "number"}), "time"),
    (frozenset({"time", "integer", "number"}), "time"),
    (frozenset({"event", "binary"}), "event"),
)
_TIED = (None, None)
_Given = Mapping[str, Variable]


@dataclass(frozen=True)
class Merged:
    """A dictionary merged from several sites' drafts.

    Attributes
    ----------
    dictionary : loads without corrections.
    notes : by column, what a person should check.
    conflicts : what the sites must settle, each with its column and sites.
    """

    dictionary: Dictionary
    notes: Mapping[str, str]
    conflicts: tuple[str, ...]


def merge(drafts: Mapping[str, Dictionary], outcome: Outcome | None = None) -> Merged:
    """Merge the sites' drafts into one dictionary.

    Parameters
    ----------
    drafts : by site.
    outcome : of the study; its columns get its types.

    Raises
    ------
    DataError : the result is no dictionary, such as a duration since a column that is no date.
    """
    columns = {site: list(draft.variables) for site, draft in drafts.items()}
    names = list(dict.fromkeys(name for here in columns.values() for name in here))
    variables: dict[str, Variable] = {}
    notes: dict[str, str] = {}
    conflicts: list[str] = []
    for name in names:
        having = {site: d.variables[name] for site, d in drafts.items() if name in d.variables}
        column = _Column(name, having, outcome)
        v = column.merged()
        taken = outcome.columns if outcome is not None else ()
        late = hints.late(name, outcome, names) if outcome is not None else ""
        if late and name not in taken and not v.identifier:
            v = replace(v, feature=False)
            column.notes.append(f"{late}?")
        lacking = hints.lacking(name, columns)
        if lacking.endswith("?"):  # a header to correct, not a column to leave out
            column.conflicts.append(lacking)
        elif lacking:
            v = v if name in taken else replace(v, feature=False)
            column.notes.append(lacking)
        variables[name] = v
        said = [*column.conflicts, *column.notes]
        notes[name] = f"check: {'; '.join(said)}" if said else ""
        conflicts += [f"column {name!r}: {text}" for text in column.conflicts]
    conflicts += _outcomes(drafts, outcome)
    heads = {
        k: next((t for d in drafts.values() if (t := getattr(d, k))), "") for k in ("licence",)
    }
    merged = Dictionary(variables, **heads)
    return Merged(
        Dictionary.from_dict(merged.to_dict(), "the drafts, merged"), notes, tuple(conflicts)
    )


def marked(drafts: Iterable[Dictionary]) -> Survival | None:
    """Return the survival outcome that most drafts mark, or None."""
    found = Counter(o for d in drafts if (o := d.outcome()) is not None)
    return found.most_common(1)[0][0] if found else None


def _outcomes(drafts: Mapping[str, Dictionary], outcome: Outcome | None) -> list[str]:
    """Return a conflict if drafts mark other columns than the study's outcome."""
    marks = {s: " and ".join(map(repr, o.columns)) for s, d in drafts.items() if (o := d.outcome())}
    if not isinstance(outcome, Survival) or set(marks.values()) <= {
        " and ".join(map(repr, outcome.columns))
    }:
        return []
    return [f"the outcome is {_by_site(marks)}"]


class _Column:
    """Merges the entries of one column, and collects its conflicts and notes."""

    def __init__(self, name: str, having: _Given, outcome: Outcome | None):
        filled = {s: v for s, v in having.items() if v.description != EMPTY or v.type != "number"}
        self.name = name
        self.outcome = outcome
        self.given = filled or having
        self.conflicts: list[str] = []
        self.notes: list[str] = []
        if filled and (empty := [s for s in having if s not in filled]):
            self.notes.append(f"empty at {first_of(empty, NAMED)}")

    def merged(self) -> Variable:
        """Return the merged entry of the column."""
        said = list(self.given.values())
        kind = self._type()
        coded = kind in ("category", "binary")
        ranged = kind in RANGED or (kind == "date" and any(v.since for v in said))
        missing = tuple(dict.fromkeys(code for v in said for code in v.missing))
        levels, kind = self._levels(kind, missing) if coded else ((), kind)
        if kind == "binary" and not levels:
            missing = tuple(code for code in missing if code not in ("0", "1"))
        alone = {code: [s for s, v in self.given.items() if code in v.missing] for code in missing}
        self.notes += [
            f"{code!r} stands for a missing value at {first_of(sites, NAMED)} alone"
            for code, sites in alone.items()
            if len(sites) < len(said)
        ]
        v = Variable(
            self.name,
            kind,
            levels,
            unit=self._commonest("unit"),
            range=self._range("range") if ranged else _TIED,
            missing=missing,
            since=self._commonest("since") if kind == "date" else "",
            description=next((t for v in said if (t := v.description) and t != EMPTY), ""),
            view=self._commonest("view"),
            feature=all(v.feature for v in said),
            identifier=any(v.identifier for v in said) and kind not in ("time", "event"),
            usual=self._range("usual") if ranged else _TIED,
            per=next((v.per for v in said if v.per), 0.0) if ranged and kind != "time" else 0.0,
        )
        for words, sites in (
            ("no feature", [s for s, one in self.given.items() if not one.feature]),
            ("an identifier", [s for s, one in self.given.items() if one.identifier]),
        ):
            if 0 < len(sites) < len(said):
                self.notes.append(f"{words} at {first_of(sites, NAMED)} alone")
        return self._no_outcome(v)

    def _no_outcome(self, v: Variable) -> Variable:
        """Return the entry with an ordinary type if the study's outcome has other columns."""
        taken = self.outcome.columns if self.outcome is not None else ()
        if v.type not in ("time", "event") or self.outcome is None:
            return v
        if self.outcome.type_of(self.name):
            return v
        kind = "number" if v.type == "time" else "binary"
        if self.name in taken:
            return replace(v, type=kind)
        self.notes.append("marked as an outcome, and not the study's")
        return replace(v, type=kind, feature=False)

    def _type(self) -> str:
        kinds = {site: v.type for site, v in self.given.items()}
        if own := self.outcome.type_of(self.name) if self.outcome is not None else "":
            fit = {"time": RANGED, "event": ("event", "binary")}.get(own, RANGED)
            wrong = {s: k for s, k in kinds.items() if k not in fit}
            if wrong:
                self.conflicts.append(f"the outcome's {own} is {_by_site(wrong)}")
            return own
        found = frozenset(kinds.values())
        if len(found) == 1:
            return next(iter(found))
        named = any(v.type == "binary" and v.levels for v in self.given.values())
        together = dict(_TOGETHER).get(found)
        if together is not None and not (named and together in ("integer", "number", "event")):
            self.notes.append(_by_site(kinds))
            return together
        self.conflicts.append(f"it is {_by_site(kinds)}")
        best = Counter(kinds.values()).most_common()
        first = [kind for kind, n in best if n == best[0][1]]
        return next((kind for kind in first if kind not in ("text", "category")), first[0])

    def _levels(self, kind: str, missing: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the levels of all sites, and the type that fits their number."""
        own = {
            site: v.levels or ("0", "1")
            for site, v in self.given.items()
            if v.type in ("category", "binary")
        }
        if kind == "binary" and not any(v.levels for v in self.given.values()):
            return (), kind
        listed = list(dict.fromkeys(own.values()))
        levels = tuple(dict.fromkeys(level for of in listed for level in of))
        if all(of == sorted_levels(of) for of in listed):
            levels = sorted_levels(levels)
        elif len(listed) > 1:
            self.notes.append("the levels' order")
        both = [level for level in levels if level in missing]
        levels = tuple(level for level in levels if level not in missing)
        if both:
            self.notes.append(f"{', '.join(map(repr, both))}: a missing code, or a level?")
        disjoint = any(not any({*a} & {*b} for b in own.values() if b != a) for a in own.values())
        if len(listed) > 1 and disjoint:
            self.conflicts.append(
                f"levels are {_by_site({s: ' and '.join(map(repr, of)) for s, of in own.items()})}"
            )
        elif len(own) > 1:
            at = {level: [s for s, of in own.items() if level in of] for level in levels}
            alone = {level: sites[0] for level, sites in at.items() if len(sites) == 1}
            self.notes += [f"{level!r} only at {site}" for level, site in alone.items()]
        if spelt := hints.spellings(levels):
            self.notes.append(spelt)
        fits = len(levels) == 2 if kind == "binary" else bool(levels)
        return (levels, kind) if fits else (levels, "category" if levels else "text")

    def _commonest(self, field: str) -> str:
        """Return the commonest text of a field; note the sites where it is empty."""
        said = {site: getattr(v, field) for site, v in self.given.items()}
        texts = {site: text for site, text in said.items() if text}
        if not texts:
            return ""
        best = Counter(texts.values()).most_common(1)[0][0]
        if len({text.casefold() for text in texts.values()}) > 1:
            self.conflicts.append(f"{field} is {_by_site(texts)}")
        elif len(texts) < len(said):
            silent = [site for site in said if site not in texts]
            self.notes.append(f"no {field} at {first_of(silent, NAMED)}")
        return best

    def _range(self, field: str) -> tuple[float | None, float | None]:
        """Return the range that covers all sites' ranges."""
        ranges = {s: r for s, v in self.given.items() if (r := getattr(v, field)) != _TIED}
        if not ranges:
            return _TIED
        lows = [low for low, _ in ranges.values()]
        highs = [high for _, high in ranges.values()]
        if any(
            low is not None and high is not None and low >= high for low in lows for high in highs
        ):
            spoken = {s: f"{_end(low)} to {_end(high)}" for s, (low, high) in ranges.items()}
            self.conflicts.append(f"{field} is {_by_site(spoken)}: other units?")
        low = None if None in lows else min(x for x in lows if x is not None)
        high = None if None in highs else max(x for x in highs if x is not None)
        return low, high


def _end(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"


def _by_site(said: Mapping[str, str]) -> str:
    """Return texts with their sites: "g/dL at east, north; mmol/L at west"."""
    sites: dict[str, list[str]] = {}
    for site, text in said.items():
        sites.setdefault(text, []).append(site)
    return "; ".join(f"{text} at {first_of(names, NAMED)}" for text, names in sites.items())
