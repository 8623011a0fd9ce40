"""Common parts of sections: their type, and shared blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedcohort.report import words
from fedcohort.report.charts import shape
from fedcohort.report.markup import Child, Markup, h, join
from fedcohort.report.run import Arm, Run
from fedcohort.report.verdict import leading


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes
    ----------
    key : its anchor.
    title : a question or a claim, in the reader's words.
    intro : how to read what follows, in one or two sentences.
    body : the pictures and tables.
    short : its name in the list of contents.
    """

    key: str
    short: str
    title: str
    intro: Child
    body: Markup


def key(arm: Arm) -> Markup:
    """Return an arm's mark and title, for text and legends."""
    mark = h(
        "svg",
        h("path", d=shape(arm.look), transform="translate(8 8) scale(5.4)"),
        class_=f"key {arm.look}",
        viewBox="0 0 16 16",
        aria_hidden="true",
    )
    return h("span", mark, h("span", arm.title), class_="arm")


def legend(arms: Iterable[Arm]) -> Markup:
    """Return a legend of arms."""
    return h("p", (key(a) for a in arms), class_="legend")


def follow_up(run: Run) -> str:
    """Return the title of an axis of follow-up, with its unit where it is known."""
    return run.clock.axis


def timed(run: Run, points: Iterable[Sequence[float]]) -> list[tuple[float, ...]]:
    """Return points with times (their first numbers) in the displayed unit."""
    return [(run.clock.at(t), *rest) for t, *rest in points]


def more(summary: str, *body: Child) -> Markup:
    """Return details that open on a click, without a script."""
    return h("details", h("summary", summary), *body)


def same_for(titles: Iterable[str], blocks: Sequence[Child]) -> Markup | None:
    """Return the blocks of other arms or settings, folded under their titles; None if there are
    none.
    """
    named = words.listed([f"“{title}”" for title in dict.fromkeys(titles)])
    return more(f"The same for {named}", *blocks) if blocks else None


def first_setting(run: Run, shown: Sequence[str], draw: Callable[[str], Markup | None]) -> Markup:
    """Return the first setting's figure, and the others folded.

    Parameters
    ----------
    shown : names of the settings that have something.
    draw : a setting's name → its figure.
    """
    drawn = [found for c in shown if (found := draw(c)) is not None]
    return join(*drawn[:1], same_for([run.scenarios[c] for c in shown[1:]], drawn[1:]))


def leading_open(run: Run, drawn: Sequence[tuple[Arm, Markup]], kept: int = 1) -> Markup:
    """Return blocks of arms: the leading arm's first, the rest folded.

    Parameters
    ----------
    drawn : blocks in the order of the page, several per arm in succession.
    kept : number of blocks of the leading arm that stay open.
    """
    lead = leading(run)
    arms = list({arm.name: arm for arm, _ in drawn}.values())
    first = next((a for a in arms if lead is not None and a.name == lead.name), arms[0])
    own = [block for arm, block in drawn if arm.name == first.name]
    others = [block for arm, block in drawn if arm.name != first.name]
    return join(
        *own[:kept],
        more(f"More of “{first.title}”", *own[kept:]) if own[kept:] else None,
        same_for([a.title for a in arms if a.name != first.name], others),
    )
