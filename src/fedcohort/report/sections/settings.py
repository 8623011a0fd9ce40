"""Absent parts, TRIPOD+AI, settings, tuning, versions, and how to repeat the study.

Files: results.json, `left_out`, `tuning`, `versions`; model cards of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedcohort.report import modelling, words
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, key, more
from fedcohort.report.tripod import FILLED, PART, WRITE, Line, checklist


def absent(run: Run) -> Section | None:
    """Return the absent parts with reasons; None if there are none."""
    rows = [[str(x["title"]), str(x["reason"])] for x in run.rows("left_out") if x.get("part")]
    if not rows:
        return None
    return Section(
        "absent", "Not computed", "What does this report lack?",
        "No row left its hospital, so a network gives fewer parts than a study on one computer. "
        "The same study file over the hospitals' tables in one place has these parts, and the "
        "same models.",
        table(["Part", "Why it is absent"], rows, caption="Parts that are not computed"),
    )  # fmt: skip


_WORDS = {FILLED: "filled", PART: "please complete", WRITE: "please write"}


def tripod(run: Run) -> Section | None:
    """Return the checklist; None for a task without predictions."""
    if not run.kind.predicts:
        return None
    lines = checklist(run)
    n = {state: sum(line.state == state for line in lines) for state in _WORDS}
    return Section(
        "tripod", "TRIPOD+AI", "What must a paper about this model say?",
        f"The reporting guideline for prediction models (Collins et al., BMJ 385, 2024, e078378), "
        f"in our words. Of its {len(lines)} items the run fills {n[FILLED]} and begins {n[PART]}; "
        f"{n[WRITE]} are a person's to write.",
        more(f"The {len(lines)} items", _table(lines)),
    )  # fmt: skip


def _table(lines: Sequence[Line]) -> Markup:
    """Return the items with the run's answers."""
    return table(
        ["Item", "Asks for", "This study", ""],
        [_row(line) for line in lines],
        caption="TRIPOD+AI checklist",
        class_="checklist",
    )


def _row(line: Line) -> list[str | Markup]:
    name = h("span", line.number, h("small", line.topic))
    state = h("span", _WORDS[line.state], class_=f"state {line.state}")
    return [name, line.ask, line.text, state]


_MOST_TRIED = 40
#: More columns that are left out are counted by reason, and named in a fold.
_MOST_DROPPED = 25


def settings(run: Run) -> Section | None:
    """Return the settings of the study and of each arm."""
    blocks = [
        _facts("The data", _data(run)),
        _facts(
            run.kind.asked,
            run.mapping("outcome"),
        ),
        _facts("How it is judged", _told(run)),
        _facts("Preparing the data, inside each hospital", run.mapping("preprocess")),
        _facts("Privacy", run.mapping("privacy")),
    ]
    features = [words.spaced(str(f)) for f in run.mapping("data").get("features") or ()]
    body = h(
        "div",
        h("div", (b for b in blocks if b), class_="columns"),
        more(f"The {len(features)} features", p(", ".join(features))) if features else None,
        _dropped(run),
        more("Each arm", h("div", (_arm(run, a) for a in run.arms), class_="columns"))
        if run.arms
        else None,
        _tuning(run),
        _cards(run),
    )
    return Section(
        "settings", "Settings", "What exactly was done?",
        "Everything that was set, as the study ran it.", body,
    )  # fmt: skip


def reproduce(run: Run) -> Section | None:
    """Return versions, the seed and the command."""
    results = run.results
    command = str(results.get("command") or "")
    seed = results.get("seed")
    rows = [[str(k), str(v)] for k, v in run.mapping("versions").items()]
    body = h(
        "div",
        h("pre", h("code", command)) if command else None,
        p(f"Seed {seed}.") if seed is not None else None,
        p(
            "The study file as run is study.yaml, the environment environment.json, "
            "every number of this page results.json, metrics.csv and history.csv, every reply of "
            "every hospital ledger.jsonl, all in the folder of this page."
        ),
        more("Versions", table(["Software", "Version"], rows, caption="Versions"))
        if rows
        else None,
    )
    return Section(
        "reproduce", "Reproduce", "How to get these numbers again",
        "With the same study file, seed and versions, the same numbers come out.", body,
    )  # fmt: skip


def _data(run: Run) -> Mapping[str, Any]:
    """Return facts on the data that stand nowhere else; events for survival."""
    data = {k: v for k, v in run.mapping("data").items() if k not in ("features", "events")}
    if data and run.task == "survival":
        events = run.mapping("data").get("events")
        data["events"] = "hidden, since some site has few" if events is None else events
    if data.get("sites_left_out"):
        data["sites_left_out"] = words.sites_left_out(data["sites_left_out"])
    return data


def _dropped(run: Run) -> Markup | None:
    """Return the columns that no model used, and why."""
    told = (d for a in run.arms for d in run.model_rows("dropped", a.name))
    why = {str(d["column"]): str(d["reason"]) for d in told}
    if not why:
        return None
    named = [f"{words.spaced(column)} ({reason})" for column, reason in why.items()]
    if len(why) <= _MOST_DROPPED:
        return p(f"Columns left out of the models: {', '.join(named)}.")
    counted = Counter(why.values())
    said = ", ".join(f"{words.count(n)} ({reason})" for reason, n in counted.most_common())
    return more(f"Columns left out of the models: {said}", p(", ".join(named)))


def _told(run: Run) -> Mapping[str, Any]:
    """Return how the study is judged, without the checksum."""
    return {k: v for k, v in run.mapping("evaluate").items() if k != "test_mark"}


def _facts(title: str, content: Mapping[str, Any]) -> Markup | None:
    """Return a block of names and values."""
    if not content:
        return None
    pairs = (
        join(h("dt", words.spaced(str(k))), h("dd", words.value(v))) for k, v in content.items()
    )
    return h("div", h("h3", title), h("dl", pairs), class_="facts-block")


def _arm(run: Run, arm: Arm) -> Markup:
    """Return one arm's settings, tuned values in place of initial ones."""
    chosen = modelling.tuned(t for t in run.rows("tuning") if t["arm"] == arm.name)
    shown = {"method": arm.method} if arm.method else {}
    shown |= {**arm.settings, **chosen}
    pairs = (join(h("dt", words.spaced(str(k))), h("dd", words.value(v))) for k, v in shown.items())
    return h("div", h("h3", key(arm)), h("dl", pairs), class_="facts-block")


def _tuning(run: Run) -> Markup | None:
    """Return the tuned choices in each scenario, and all values tried."""
    found = run.rows("tuning")
    if not found:
        return None
    titles = {a.name: a.title for a in run.arms}

    def name(t: Mapping[str, Any]) -> list[str]:
        scenario = str(t.get("scenario"))
        return [titles.get(str(t["arm"]), str(t["arm"])), run.scenarios.get(scenario, scenario)]

    chosen = [[*name(t), words.value(t.get("chosen")), words.fixed(t.get("score"))] for t in found]
    tried = [
        [*name(t), words.value(x.get("settings")), words.fixed(x.get("score"))]
        for t in found
        for x in _best(t.get("tried") or ())
    ]
    head = ["Arm", "Setting of hospitals", "Settings", "Score"]
    caption = "Settings chosen by tuning, on training patients only"
    return h(
        "div",
        h("h3", "Tuning", class_="block"),
        table(head, chosen, numeric=(3,), caption=caption),
        more("All that was tried", table(head, tried, numeric=(3,), caption="Tried, best first"))
        if tried
        else None,
    )


def _best(tried: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return tried settings, best score first, as many as fit a page."""

    def rank(item: Mapping[str, Any]) -> float:
        score = words.number(item.get("score"))
        return -score if score == score else float("inf")

    return sorted(tried, key=rank)[:_MOST_TRIED]


def _cards(run: Run) -> Markup | None:
    """Return the model cards that the run wrote, as text."""
    found = [
        more(f"Model card: {a.title}", h("pre", path.read_text(encoding="utf-8", errors="replace")))
        for a in run.arms
        if (path := run.folder / "models" / a.name / "card.md").is_file()
    ]
    return h("div", found) if found else None
