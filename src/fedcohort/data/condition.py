"""A condition on rows, such as ``age > 70 and (sex = "f" or not stage in (1, 2))``.

    condition  = part { "or" part }           part    = term { "and" term }
    term       = [ "not" ] ( "(" condition ")" | comparison )
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column "in" "(" value { "," value } ")"  |  column "is" ( "missing" | "known" )

``==`` is ``=``. A column or a text with other signs than letters, digits, _ and . stands in quotes,
' or " or `. A number's value is a number, a date's a day such as 2015-01-31, a category's one of
its levels. A row without a value does not satisfy a comparison. The text is parsed here, never run.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.words import known_name, level_text
from fedcohort.protocol.errors import SettingError

#: Longest text, and deepest nesting.
LONGEST, DEEPEST = 2_000, 50

_TOKEN = re.compile(
    r"""\s*(?:(?P<sign><=|>=|==|!=|<|>|=|\(|\)|,)
    |(?P<quote>"[^"]*"|'[^']*'|`[^`]*`)
    |(?P<word>[^\s<>=!(),"'`]+))""",
    re.VERBOSE,
)
_COMPARED: dict[str, Callable[..., Array]] = {
    "=": np.equal, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_ORDER = frozenset({"<", "<=", ">", ">="})
_WORDS = frozenset({"and", "or", "not", "in", "is"})

#: table → which rows satisfy a condition (n,).
Holds = Callable[[pd.DataFrame], Array]


class _Token(NamedTuple):
    """A part of the text; `kind` is sign, quote, word, or end."""

    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class Condition:
    """A parsed condition.

    Attributes
    ----------
    text : as given.
    columns : that it compares, in order.
    """

    text: str
    columns: tuple[str, ...]
    _holds: Holds = field(repr=False)

    def holds(self, frame: pd.DataFrame) -> Array:
        """Return the rows (n,) of a table that satisfy it."""
        return self._holds(frame)

    @classmethod
    def parse(cls, text: str, dictionary: Dictionary, option: str = "--where") -> Condition:
        """Return the condition of a text.

        Raises
        ------
        SettingError : it is not of the form above, or names an unknown column or level, or
            compares the levels of a category by size.
        """
        if len(text) > LONGEST:
            raise SettingError(f"{option}: the condition has more than {LONGEST} characters.")
        parser = _Parser(text, dictionary, option)
        holds = parser.condition(0)
        if parser.token.kind != "end":
            parser.fail("expected 'and', 'or' or the end")
        return cls(text, tuple(dict.fromkeys(parser.columns)), holds)


class _Parser:
    """A reader of one text, part by part."""

    def __init__(self, text: str, dictionary: Dictionary, option: str):
        self._dictionary, self._option = dictionary, option
        self._tokens = self._divided(text)
        self._next = 0
        self.columns: list[str] = []

    def _divided(self, text: str) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise SettingError(
                    f"{self._option}: cannot read the text from character {at + 1} on. Put names "
                    f"with other signs than letters, digits, _ and . in quotes."
                )
            start = match.start(match.lastgroup)
            found.append(_Token(match.lastgroup, match[match.lastgroup], start))
            at = match.end()
        return [*found, _Token("end", "", len(text))]

    @property
    def token(self) -> _Token:
        """The part to read next."""
        return self._tokens[self._next]

    def fail(self, what: str) -> NoReturn:
        """Raise an error about the next part."""
        here = "at the end" if self.token.kind == "end" else f"at character {self.token.at + 1}"
        raise SettingError(
            f"{self._option}: {what} {here}. Write a condition such as age > 70 and sex = f."
        )

    def _take(self, *texts: str) -> str:
        """Return the next part and go on, if it is one of these signs or words; else ""."""
        token = self.token
        text = token.text.lower() if token.kind == "word" else token.text
        if token.kind not in ("sign", "word") or text not in texts:
            return ""
        self._next += 1
        return text

    def condition(self, depth: int) -> Holds:
        """Return a condition: parts joined by "or"."""
        if depth > DEEPEST:
            self.fail(f"more than {DEEPEST} conditions in each other")
        parts = [self._part(depth)]
        while self._take("or"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else _joined(np.logical_or, parts)

    def _part(self, depth: int) -> Holds:
        terms = [self._term(depth)]
        while self._take("and"):
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else _joined(np.logical_and, terms)

    def _term(self, depth: int) -> Holds:
        if self._take("not"):
            if depth > DEEPEST:
                self.fail(f"more than {DEEPEST} conditions in each other")
            inner = self._term(depth + 1)
            return lambda frame: ~inner(frame)
        if self._take("("):
            inner = self.condition(depth + 1)
            if not self._take(")"):
                self.fail("expected ')'")
            return inner
        return self._comparison()

    def _comparison(self) -> Holds:
        v = self._column()
        if self._take("is"):
            asked = self._take("missing", "known")
            if not asked:
                self.fail("expected 'missing' or 'known'")
            return lambda frame: frame[v.name].isna().to_numpy() == (asked == "missing")
        if self._take("in"):
            if not self._take("("):
                self.fail("expected '('")
            values = [self._value(v)]
            while self._take(","):
                values.append(self._value(v))
            if not self._take(")"):
                self.fail("expected ',' or ')'")
            return lambda frame: _known(frame, v) & np.isin(_values(frame, v), values)
        sign = self._take(*_COMPARED)
        if not sign:
            self.fail("expected one of = != < <= > >=, 'in' or 'is'")
        if v.coded and sign in _ORDER:
            self.fail(f"column {v.name!r} has levels, compared by = or !=; expected one of these")
        value, compare = self._value(v), _COMPARED[sign]
        return lambda frame: _known(frame, v) & compare(_values(frame, v), value).astype(bool)

    def _column(self) -> Variable:
        token = self.token
        if token.kind not in ("word", "quote") or (
            token.kind == "word" and token.text.lower() in _WORDS
        ):
            self.fail("expected a column")
        name = token.text[1:-1] if token.kind == "quote" else token.text
        if name not in self._dictionary:
            known = self._dictionary.variables
            raise SettingError(f"{self._option}: there is {known_name('column', name, known)}")
        self._next += 1
        self.columns.append(name)
        return self._dictionary[name]

    def _value(self, v: Variable) -> float | str:
        """Return a value of a column.

        Raises
        ------
        SettingError : it is none.
        """
        token = self.token
        if token.kind not in ("word", "quote"):
            self.fail("expected a value")
        text = token.text[1:-1] if token.kind == "quote" else token.text
        if v.coded:
            if level_text(text) not in v.levels:
                told = known_name("level", text, v.levels)
                raise SettingError(f"{self._option}: column {v.name!r} has {told}")
            self._next += 1
            return level_text(text)
        try:
            value = (
                datetime.date.fromisoformat(text).isoformat() if v.type == "date" else float(text)
            )
        except ValueError:
            what = "a day such as 2015-01-31" if v.type == "date" else "a number"
            self.fail(f"column {v.name!r} is compared with {what}; expected one")
        if value != value:
            self.fail(f"column {v.name!r} is compared with a number; expected one")
        self._next += 1
        return value


def _joined(how: Callable[[Array, Array], Array], parts: Sequence[Holds]) -> Holds:
    def holds(frame: pd.DataFrame) -> Array:
        found = parts[0](frame)
        for part in parts[1:]:
            found = how(found, part(frame))
        return found

    return holds


def _known(frame: pd.DataFrame, v: Variable) -> Array:
    return frame[v.name].notna().to_numpy()


def _values(frame: pd.DataFrame, v: Variable) -> Array:
    """Return a column as floats or as text (n,)."""
    if v.coded:
        return frame[v.name].map(level_text, na_action="ignore").fillna("").to_numpy(str)
    if v.type == "date":
        return frame[v.name].fillna("").to_numpy(str)
    return frame[v.name].to_numpy(float, na_value=np.nan)
