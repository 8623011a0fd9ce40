"""The answer first: one sentence, then one per scenario, then caveats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedcohort.report import cluster_verdict, latent_verdict, words
from fedcohort.report.markup import Markup, h, join, p
from fedcohort.report.run import Arm, Run
from fedcohort.report.verdict import (
    AHEAD,
    ALONE,
    HELPED,
    MISSING,
    NO_GAP,
    SINGLE,
    WORSE,
    Verdict,
    answer,
    judge,
    leading,
)  # fmt: skip
from fedcohort.report.words import estimate, fixed, percent

#: So many columns that were filled in are named.
FILLED_NAMED = 5


def by_scenario(run: Run, arm: Arm) -> Markup:
    """Return one sentence a scenario."""
    if run.task == "clustering":
        said = {c: cluster_verdict.sentence(run, arm, c) for c in run.scenarios}
        titles = run.scenarios
        lines = (h("li", h("b", f"{titles[c]}: "), words.unbroken(s)) for c, s in said.items())
        return h("ul", lines, class_="verdicts")
    items = [
        h(
            "li",
            h("b", f"{run.scenarios[v.scenario]}: "),
            *map(words.unbroken, [*_sentence(run, arm, v), *_besides(run, arm, v.scenario)]),
        )
        for v in (judge(run, arm, c) for c in run.scenarios)
    ]
    return h("ul", items, class_="verdicts")


def _sentence(run: Run, arm: Arm, v: Verdict) -> list[str]:
    """Return the result in one scenario, with its numbers."""
    known = run.known()
    if v.kind == MISSING:
        why = run.failures(arm.name, v.scenario)
        return [f"failed: {_sentences(why)}" if why else "no value."]
    found = run.summary(arm.name, v.scenario)
    assert found is not None
    value = estimate(found.mean, found.low, found.high, known.digits)
    reached = f"{known.label} {value}{known.after}"
    if v.kind == ALONE or v.share is None or run.lower is None or run.upper is None:
        missing = "; a bound is missing, so that there is no gap to compare with"
        return [f"{reached}{missing if run.lower and run.upper else ''}."]
    s = v.share
    interval = words.between(100 * s.low, 100 * s.high, 0)
    how = f"{percent(s.value)} of the gap closed" + (
        f" (95 % interval {interval} %)" if interval else ""
    )
    if v.kind == HELPED:
        rest = run.difference(arm.name, run.upper.name, v.scenario)
        behind = "below" if known.sign > 0 else "behind"
        tail = {
            0: "what remains to all data in one place is within chance",
            -1: f"it stays clearly {behind} all data in one place",
            1: "it even beats all data in one place",
        }[rest.side]
        return [f"{reached}; {how}; {tail}."]
    if v.kind == SINGLE:
        return [f"{reached}; too few repeats to say whether there is a gap to close."]
    if v.kind == NO_GAP:
        return [f"{reached}; all data in one place did not clearly beat a hospital alone, so that "
                "there was no gap to close."]  # fmt: skip
    gain = s.gain
    interval = words.between(gain.low, gain.high, known.digits)
    change = f"difference {fixed(gain.value, known.digits)}, 95 % interval {interval}"
    if v.kind == AHEAD:
        return [
            f"{reached}; better than a hospital alone ({change}); all data in one place did not "
            "clearly beat a hospital alone, so that no share of a gap is given."
        ]
    if v.kind == WORSE:
        return [f"{reached}; worse than a hospital alone ({change})."]
    return [f"{reached}; not clearly better than a hospital alone ({change})."]


def _besides(run: Run, arm: Arm, scenario: str) -> list[str]:
    """Return the task's sentence on a setting besides the leading metric."""
    return latent_verdict.filled(run, arm, scenario) if run.task == "latent" else []


def caveats(run: Run, arm: Arm | None) -> list[str]:
    """Return the caveats of the headline."""
    out: list[str] = []
    split = [t for s, t in run.scenarios.items() if s not in run.natural]
    if split:
        few = "these settings" if len(split) > 1 else "this setting"
        out.append(
            f"The hospitals of {few} are simulated: one data set was divided among them, and "
            "nothing left this computer."
        )
    if arm is not None and len(run.together) > 1:
        out.append(
            f"“{arm.title}” is the best, on average, of {len(run.together)} ways of training "
            "together that were tried. It was picked after seeing the results, which flatters it "
            "a little; the others are shown beside it."
        )
    if run.repeats > 1:
        held = run.test_fraction
        part = f", each time with another {percent(held)} of patients held back for testing" * (
            held > 0
        )
        judged = (
            "by the same draws for both; so few repeats do not show by how much fits to other "
            "patients would differ"
            if run.compared_by_patients
            else "within repeats, allowing for the patients that repeats share"
        )
        out.append(
            f"Every fit was repeated {run.repeats} times{part}. {_intervals(run)} Whether arms "
            f"differ is judged {judged}. None of this tells how the model does at a hospital that "
            "took no part."
        )
    elif any(not math.isnan(words.number(s.get("low"))) for s in run.rows("summary")):
        out.append(
            "The study was run once. Its intervals come from drawing the held-back patients again, "
            "for differences of arms the same draws for both; with other patients held back, the "
            "order of the arms may differ."
        )
    else:
        out.append(
            "The study was run once. Without repeats there are no intervals, and small "
            "differences may be chance."
        )
    out += cluster_verdict.caveats() if run.task == "clustering" else []
    out += latent_verdict.caveats() if run.task == "latent" else []
    out += [*_final(run), *_horizon(run), *_personal(run), *_deployed(run), *_missing(run)]
    out += [*_drowned(run), *_cautions(run), *_filled(run)]
    for a in run.arms:
        reasons = run.failures(a.name)
        if reasons:
            n = sum(
                r["arm"] == a.name and r.get("status", "done") != "done" for r in run.rows("arms")
            )
            out.append(f"{words.of(n, 'fit')} of “{a.title}” failed: {_sentences(reasons)}")
        noted = [r for r in run.rows("arms") if r["arm"] == a.name and r.get("note")]
        alone = sorted({str(r["site"]) for r in noted})
        if alone:
            out.append(
                f"In “{a.title}”, {words.listed(alone)} counts as chance: its own rows give no "
                "model."
                if len(alone) == 1
                else f"In “{a.title}”, {words.some(alone)} count as chance: their own rows give "
                f"no model, in one fit at least.{_of_all(run, len(alone))}"
            )
    return out


def _of_all(run: Run, n: int) -> str:
    """Return the number of these hospitals among all, if settings have as many."""
    sizes = {len(run.sites(scenario)) for scenario in run.scenarios}
    return f" These are {n} of {max(sizes)} hospitals." if len(sizes) == 1 and max(sizes) else ""


def _horizon(run: Run) -> list[str]:
    """Return that nothing is shown at the study's horizon, for lack of follow-up."""
    asked = run.mapping("evaluate").get("horizon")
    if not asked:
        return []
    late: list[str] = []
    shown = bool(run.rows("calibration") or run.rows("decision"))
    none = "" if shown else ", and there are no calibration and no decision curves"
    for arm in run.together:
        for row in run.model_rows("unknown_at_horizon", arm.name):
            who = f" in stratum {row['stratum']}" if row.get("stratum") else ""
            late.append(
                f"The study asks for risks by {asked}. The model of “{arm.title}” knows survival"
                f"{who} up to {run.clock.say(words.number(row['known_until']))} only, as too few "
                f"patients were followed longer: its risk by {asked} stays empty{none}. Give an "
                f"earlier evaluate.horizon."
            )
    if late or shown:
        return late
    return [
        f"The study asks for risks by {asked}, and too few patients were followed so far: there "
        f"are no calibration and no decision curves. Give an earlier evaluate.horizon."
    ]


def _final(run: Run) -> list[str]:
    """Return which fits performance describes, if final models use all rows."""
    asked = {str(f["arm"]): f for f in run.rows("final")}
    titles = {a.name: a.title for a in run.together if a.name in asked}
    if not titles:
        return []
    failed = {
        name: str(asked[name].get("status")).removeprefix("failed: ").rstrip(".")
        for name in titles
        if run.final(name) is None
    }
    judged = {r["arm"] for r in run.rows("arms") if r.get("status", "done") == "done"}
    out = [
        f"The final fit of “{titles[name]}”, to all rows, failed: {why}. Its model and "
        f"coefficients are those of the first repeat."
        for name, why in failed.items()
        if name in judged  # an arm without any fit has its reason with those of its repeats
    ]
    if len(failed) == len(titles):
        return out
    for name in sorted(titles.keys() - failed.keys(), key=list(titles).index):
        if gone := words.absent_from_final(run.rows("missing"), name):
            out.append(
                f"The final fit of “{titles[name]}” is not over all hospitals: some or all of its "
                f"sums lack the rows of {words.listed(gone)}, away at the time. So does the model "
                f"that is kept."
            )
    effects = any(run.model_rows("coefficients", name) for name in titles)
    return [
        f"The models that are kept{', and the coefficients,' * effects} are of final fits to all "
        "rows. "
        "Performance is never of these: it is of fits that left the blind rows out, on those rows.",
        *out,
    ]


def _intervals(run: Run) -> str:
    """Return where the intervals of metrics come from."""
    if run.mapping("evaluate").get("intervals") == "repeats":
        return (
            "Numbers in brackets are 95 % intervals over the repeats, which allow for the patients "
            "that repeats share."
        )
    return (
        "Numbers in brackets are 95 % intervals that come from drawing the patients again; they "
        "hold the fits as they are."
    )


def _deployed(run: Run) -> list[str]:
    """Return the caveats of a run over a network."""
    if not run.deployed:
        return []
    out = [
        "No row left its hospital: metrics were formed from sums over hospitals. How exact each "
        "is stands under “All metrics as tables”."
    ]
    out += [f"“{words.title(str(x['arm']), x.get('title'))}” was left out. {x['reason']}"
            for x in run.rows("left_out") if x.get("arm")]  # fmt: skip
    if parts := [str(x["title"]) for x in run.rows("left_out") if x.get("part")]:
        few = words.listed([f"“{title}”" for title in parts[:3]])
        out.append(
            f"{words.of(len(parts), 'part')} of a study on one computer "
            f"{'is' if len(parts) == 1 else 'are'} not computed here, such as {few}: see “Not "
            "computed”."
        )
    if run.lower is not None:
        notes = {str(d["arm"]): d.get("note") for d in run.rows("declared")}
        if note := notes.get(run.lower.name):
            out.append(f"“{run.lower.title}”: {note}")
    absent = run.mapping("network").get("absent") or {}
    out += [f"{site} takes no part ({str(why).rstrip('.')})." for site, why in absent.items()]
    return out


def _personal(run: Run) -> list[str]:
    """Return the users of personal models, which are judged on the others' patients as well."""
    users: dict[str, list[str]] = {}
    for arm in run.arms:
        if arm.every:
            continue
        if user := str(arm.settings.get("user") or ""):
            users.setdefault(user, []).append(f"“{arm.title}”")
    every = [f"“{arm.title}”" for arm in run.arms if arm.every]
    said = (
        f"{words.listed(every)} {'has' if len(every) == 1 else 'have'} a model for each hospital, "
        f"judged on that hospital's patients: ranks compare patients of one hospital, for every "
        f"arm. See “Own models”."
    )
    return ([said] if every else []) + [
        f"{words.listed(names)} {'is a model' if len(names) == 1 else 'are models'} for {user}, "
        f"judged here on the patients of all hospitals."
        for user, names in users.items()
    ]


def _drawn(asked: Mapping[str, Any]) -> str:
    """Return the absences that the study asks for, in words."""
    share = words.percent(words.number(asked.get("away") or 0.0))
    own = [f"{s} {words.percent(words.number(a))}" for s, a in (asked.get("by_site") or {}).items()]
    parts = [f"each hospital was away from {share} of rounds"] if asked.get("away") else []
    if own:
        parts.append(f"{'but' if parts else 'hospitals were away from shares of rounds:'} "
                     f"{words.listed(own)}")  # fmt: skip
    said = [f"{', '.join(parts)}, drawn at random"] if parts else []
    if asked.get("fraction"):
        part = words.percent(words.number(asked["fraction"]))
        said.append(f"{part} of the hospitals were asked in a round, drawn among those present")
    return f"As the study asks, {'; '.join(said)}: the sums of these rounds are of the others."


def _missing(run: Run) -> list[str]:
    """Return missing replies: site, arm, number, reason."""
    drawn = run.mapping("availability")
    titles = {a.name: a.title for a in run.arms}
    gone: dict[tuple[str, str], int] = {}
    odd: dict[tuple[str, str], tuple[int, str]] = {}
    for row in run.rows("missing"):
        key = (str(row["site"]), str(row["arm"]))
        if why := row.get("rejected"):
            odd[key] = (odd.get(key, (0, ""))[0] + int(row["calls"]), str(why))
        else:
            gone[key] = gone.get(key, 0) + int(row["calls"])
    out = [
        f"{words.of(n, 'reply', 'replies')} of {site} to “{titles.get(arm, arm)}” "
        f"{'was' if n == 1 else 'were'} rejected and left out: {why}"
        for (site, arm), (n, why) in sorted(odd.items())
    ]
    if drawn:
        out.append(_drawn(drawn))
        waits: dict[str, int] = {}
        for row in run.rows("waited"):
            waits[str(row["arm"])] = waits.get(str(row["arm"]), 0) + int(row["rounds"])
        out += [
            f"“{titles.get(arm, arm)}” waited {words.of(n, 'round')} in all for hospitals to "
            f"be back, as some of its calls need them."
            for arm, n in waits.items()
        ]
        return out
    out += [
        f"{site} did not answer {words.of(n, 'call')} of “{titles.get(arm, arm)}”: these sums are "
        "of the other hospitals."
        for (site, arm), n in sorted(gone.items())
    ]
    return out


def _filled(run: Run) -> list[str]:
    """Return columns with many imputed rows; the largest number over arms."""
    share: dict[str, float] = {}
    for row in run.rows("filled"):
        name = str(row["column"])
        share[name] = max(share.get(name, 0.0), words.number(row["share"]))
    if not share:
        return []
    most = sorted(share, key=lambda name: -share[name])
    named = [f"{words.spaced(name)} ({words.percent(share[name])})" for name in most[:FILLED_NAMED]]
    more = len(most) - len(named)
    listed = words.listed(named) if not more else f"{', '.join(named)} and {more} more"
    return [
        f"Many values were missing and were filled in before the fit: {listed}. Intervals take "
        "them for measured ones, so they are too narrow, and effects of these columns may be "
        "biased."
    ]


def _drowned(run: Run) -> list[str]:
    """Return the private fits that can hold nothing but noise."""
    titles = {a.name: a.title for a in run.arms}
    return list(
        dict.fromkeys(
            f"“{titles.get(str(row['arm']), row['arm'])}” is no more than noise: {row['note']}."
            for row in run.rows("drowned")
        )
    )


def _cautions(run: Run) -> list[str]:
    """Return the warnings of fits about how they ended, such as after too few rounds."""
    titles = {a.name: a.title for a in run.arms}
    told = [row for row in run.rows("crowded") if row.get("about") == "fit"]
    return list(
        dict.fromkeys(
            f"“{titles.get(str(row['arm']), row['arm'])}”: {str(row['note']).rstrip('.')}."
            for row in told
        )
    )


def _sentences(reasons: list[str]) -> str:
    """Return reasons on one line that ends with one full stop."""
    return f"{'; '.join(r.rstrip('.') for r in reasons)}."


def facts(run: Run) -> Markup:
    """Return the study's size in a few numbers."""
    data = run.mapping("data")
    sizes = [len(run.sites(c)) for c in run.scenarios if run.sites(c)]
    hospitals = (
        words.MISSING if not sizes else str(min(sizes)) if min(sizes) == max(sizes)
        else f"{min(sizes)}–{max(sizes)}"
    )  # fmt: skip
    pairs = [
        (words.count(data.get("rows")), "patients"),
        (words.count(data.get("events")), "events"),
        (hospitals, "hospitals"),
        (words.count(_used(run)), "features per patient"),
        (str(run.repeats), "repeat" if run.repeats == 1 else "repeats"),
    ]
    return h(
        "dl",
        (h("div", h("dt", name), h("dd", n)) for n, name in pairs if n not in (words.MISSING, "0")),
        class_="facts",
    )


def _used(run: Run) -> int:
    """Return the number of features without those that every model leaves out, as constant ones."""
    left = [{str(d["column"]) for d in run.model_rows("dropped", a.name)} for a in run.together]
    out = set[str].intersection(*left) if left else set[str]()
    return sum(str(f) not in out for f in run.mapping("data").get("features") or ())


def top(run: Run) -> Markup:
    """Return the head of the page: the question, the answer, the size of the study."""
    results = run.results
    arm = leading(run)
    question = str(results.get("question") or "").strip() or (
        "How close does training together come to having all data in one place?"
    )
    source = run.mapping("data")
    described = str(source.get("description") or source.get("source") or "")
    return h(
        "header",
        p(f"Study {results.get('study', '')}", class_="kicker"),
        h("h1", question),
        p(words.unbroken(answer(run)), class_="answer"),
        facts(run),
        p(f"Data: {described}", class_="quiet") if described else None,
        h("div", h("h2", "In each setting", class_="minor"), p("With ", h("b", arm.title), ":"),
          by_scenario(run, arm), class_="card") if arm else None,
        h("div", h("h2", "Before you quote this", class_="minor"),
          h("ul", (h("li", c) for c in caveats(run, arm))), class_="card soft"),
    )  # fmt: skip


def glossary(run: Run) -> Markup:
    """Return the few words that the page uses in a fixed sense."""
    lower, upper = run.lower, run.upper
    pairs = [
        (lower.title, "every hospital trains on its own patients only; "
         + ("judged on its own blind patients, all hospitals together." if run.deployed
            else "the mean over hospitals."))
        if lower else None,
        (upper.title, "all patients' rows in one place: what training together tries to reach.")
        if upper else None,
        ("Training together", "the rows stay in the hospitals; only the sums and model numbers "
         "listed under “What left each hospital” are exchanged."),
        *((run.known(m).axis, run.known(m).plain) for m in run.metrics),
    ]  # fmt: skip
    return h(
        "dl",
        (join(h("dt", x[0]), h("dd", x[1])) for x in pairs if x and x[1]),
        class_="glossary",
    )
