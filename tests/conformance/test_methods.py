"""What every installed method must keep to, on every runtime."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import sys
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import toys
from conformance.cases import (
    ENGINES,
    KINDS,
    PLANTED,
    RUNTIMES,
    VARIANTS,
    VARIED,
    Case,
    Unreadable,
    cases,
    hosts_of,
    private_cases,
    quiet,
    reference,
    run,
    tables,
    task_kind,
)
from conformance.core import OF_EVERY_SHAPE, core
from fedcohort.protocol import (
    FedcohortError,
    NotSupported,
    Refused,
    SiteFailed,
    VerbRefused,
    per_site,
    registry,
)
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime import coordinator
from fedcohort.runtime.masked.end import MaskedEnd
from fedcohort.runtime.remote import RemoteTransport

SURVIVAL = cases("survival")
CASES = [case for kind in KINDS for case in cases(kind)]
NOISY = [case for kind in KINDS for case in private_cases(kind)]
every_private_case = pytest.mark.parametrize("case", NOISY, ids=str)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
#: Methods whose curves may cross: their risk is the sum of the cumulative hazard.
CROSSING = ("bayes_net", "forest", "regression_forest", "savae")
RISKS = [case for case in SURVIVAL if "predict_survival" in case.gives]
every_survival_case = pytest.mark.parametrize("case", RISKS, ids=str)


def by_engine(*names: str) -> list[Any]:
    """Return engines as parameters, skipped where they are not installed."""
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(ENGINES[name]) is None,
                reason=f"needs fedcohort[{name.split()[0]}]",
            ),
        )
        for name in names
    ]


every_engine = pytest.mark.parametrize("runtime", by_engine("flare", "flower"))
everywhere = pytest.mark.parametrize("runtime", ["local", "remote", *by_engine("flare", "flower")])


@pytest.fixture(scope="session", autouse=True)
def networks():
    """Close the networks that tests opened."""
    yield
    if "conformance.engines" in sys.modules:
        sys.modules["conformance.engines"].close_all()


class Killed(BaseException):
    """Stands for the end of the process."""


def same(one: Any, other: Any) -> None:
    """Two runs left the same arrays, bit for bit, the same ledger and the same history."""
    assert [a[:3] for a in one.arrays] == [a[:3] for a in other.arrays]
    assert one.arrays == other.arrays
    assert one.ledger == other.ledger
    assert one.history == other.history


def test_there_are_methods_to_check():
    assert {"cox", "deepcox", "logistic", "kmeans", "deep_clustering", "vae", "mcvae"} <= {
        case.method for case in CASES
    }


def test_make_test_has_every_method_and_every_private_method():
    assert {case.method for case in CASES if core(case)} == {case.method for case in CASES}
    assert {case.method for case in NOISY if core(case)} == {case.method for case in NOISY}


@pytest.mark.parametrize("name", registry.names())
def test_a_method_is_registered_under_its_own_name_and_documented(name):
    entry = registry.find(name)
    assert entry.name == name
    assert entry.title
    assert entry.paper
    assert entry.reveals
    entry.configure({})


@every_case
@everywhere
def test_two_runs_and_all_runtimes_give_the_same_bytes(case: Case, runtime):
    same(run(case, runtime), reference(case))


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.settings and c.method in OF_EVERY_SHAPE], ids=str
)
@pytest.mark.parametrize("runtime", ["threads", *by_engine("flower over TLS")])
def test_threads_and_flowers_gate_give_the_same_bytes(case: Case, runtime):
    same(run(case, runtime), reference(case))


@every_case
@pytest.mark.parametrize("runtime", ["local, masked", "remote, masked"])
def test_masks_change_no_bit_and_the_ledger_says_so(case: Case, runtime):
    """As in a run without masks, the exact sum: no order of sites, and no noise, is in it."""
    found, plain = run(case, runtime), reference(case)
    assert found.arrays == plain.arrays
    assert found.history == plain.history
    for line, was in zip(map(json.loads, found.ledger), map(json.loads, plain.ledger), strict=True):
        assert line.pop("masked") == (line["verb"] == "sum")
        assert was.pop("masked") is False
        assert line == was


def other(value: Any) -> Any:
    """Return another value than an argument's, of its own kind."""
    if isinstance(value, np.ndarray):
        if not value.size:
            return np.zeros(1, value.dtype)
        changed = value.copy()
        changed.flat[0] = ~changed.flat[0] if value.dtype == bool else changed.flat[0] + 1
        return changed
    if isinstance(value, dict):
        name = min(value)
        return {**value, name: value[name] + 1}
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}x" if isinstance(value, str) else 0


@every_case
def test_no_argument_of_a_masked_sum_can_be_another_at_one_site(case: Case, monkeypatch):
    """But what a step says may differ; nobody helps to unmask what one site was asked alone."""
    monkeypatch.setattr(coordinator, "check_alike", lambda step, arguments: None)
    unmasked: list[str] = []
    unmask = MaskedEnd._unmask
    monkeypatch.setattr(
        MaskedEnd, "_unmask", lambda end, body: unmasked.append("one") or unmask(end, body)
    )
    honest, tried = coordinator.Coordinator.sum, set[str]()

    def hostile(fed: Any, step: Any, /, **asked: Any) -> Any:
        for name, value in asked.items():
            mark = f"{step.name}.{name}"
            if mark in tried or name in step.apart:
                continue
            tried.add(mark)
            before = len(unmasked)
            for one in fed.sites:
                told = {site: other(value) if site == one else value for site in fed.sites}
                with pytest.raises((Refused, SiteFailed)) as error:
                    honest(fed, step, **{**asked, name: per_site(told)})
                # the first site's question is given out as everyone's, and it may break on it
                assert one == fed.sites[0] or "otherwise than the other" in str(error.value)
            assert len(unmasked) == before, mark
        return honest(fed, step, **asked)

    monkeypatch.setattr(coordinator.Coordinator, "sum", hostile)
    ledger = [json.loads(line) for line in run(case, "remote, masked").ledger]
    asking = {s.name for s in case.entry.steps if len(inspect.signature(s.run).parameters) > 1}
    assert tried or not any(line["verb"] == "sum" and line["step"] in asking for line in ledger)


#: Those that leave something at their sites.
KEEPING = [
    case
    for case in (*CASES, *NOISY)
    if any(step.keeps and step.private == bool(case.protects) for step in case.entry.steps)
]


@pytest.mark.parametrize("case", KEEPING, ids=str)
def test_no_site_is_asked_for_a_sum_with_what_it_keeps_and_the_others_without(
    case: Case, monkeypatch
):
    """One with a state among others without would be alone in a sum where these tell nothing."""
    unmasked: list[str] = []
    unmask = MaskedEnd._unmask
    monkeypatch.setattr(
        MaskedEnd, "_unmask", lambda end, body: unmasked.append("one") or unmask(end, body)
    )
    honest, tried = RemoteTransport.total, set[str]()

    def hostile(transport: Any, call: Any, to: Any, weights: Any) -> Any:
        kept = transport._kept
        if call.step.state is not None and len(kept) == len(to) and call.step.name not in tried:
            tried.add(call.step.name)
            before = len(unmasked)
            for some in (to[:1], to[:2]):
                transport._kept = {site: kept[site] for site in some}
                with pytest.raises(FedcohortError):
                    honest(transport, call, to, weights)
            transport._kept = kept
            assert len(unmasked) == before, call.step.name
        return honest(transport, call, to, weights)

    monkeypatch.setattr(RemoteTransport, "total", hostile)
    run(case, "remote, masked")
    reading = {s.name for s in steps_asked(case) if s.verb == "sum" and s.state is not None}
    assert tried <= reading


def test_every_kind_of_state_is_read_by_a_masked_sum_in_some_case():
    """So that the test above is of each step that keeps, and of what it keeps."""
    kept = {s.state for case in KEEPING for s in case.entry.steps if s.keeps and s.verb == "sum"}
    assert len(kept) == 17


def test_every_strategy_and_every_rule_of_times_is_in_some_case():
    """Not with each kind of task, so that none is lost in trimming."""
    found = {(case.method, *pair) for case in CASES for pair in case.settings}
    for entry in map(registry.find, {case.method for case in CASES} - {*VARIANTS}):
        for f in dataclasses.fields(entry.settings):
            others = [c for c in f.metadata.get("choices", ()) if c != f.default]
            others = ["exact", 6] if f.name == "time_grid" else others
            for choice in others if f.name in (*VARIED, "time_grid") else ():
                assert (entry.name, f.name, choice) in found


def test_there_are_private_fits_to_check():
    assert {case.method for case in NOISY} == {
        name for name in registry.names() if registry.find(name).private is not None
    }
    assert {case.protects for case in NOISY} == {"record", "site"}


@every_private_case
@pytest.mark.parametrize("runtime", ["local, masked", "remote, masked"])
def test_masks_change_no_bit_of_a_private_fit_of_the_same_seed(case: Case, runtime):
    """Each site adds its share of the noise, as in the exact sum of one process."""
    found, plain = run(case, runtime), reference(case)
    assert all_of(found) == all_of(plain)
    assert found.history == plain.history
    for line, was in zip(map(json.loads, found.ledger), map(json.loads, plain.ledger), strict=True):
        assert line["mechanism"] == "gaussian"
        assert line.pop("masked") == (line["verb"] == "sum")
        assert was.pop("masked") is False
        assert line == was


def all_of(found: Any) -> Any:
    """Return everything that a fitted model is."""
    return found.arrays, json.dumps(found.model.meta())


@every_private_case
def test_in_an_exact_sum_a_site_adds_a_share_of_the_noise_and_in_a_plain_one_all_of_it(case: Case):
    """Else equal arrays under masks could be those of a fit without noise."""
    plain, exact = run(case, secure="false"), reference(case)
    assert case.entry.private is not None
    trains = case.entry.private.releases(case.config, case.dp)[0]
    steps = {step.name: step for step in case.entry.steps}
    if steps[trains.step].verb == "sum" and trains.draws == 1:
        assert all_of(plain) != all_of(exact)
    assert all_of(run(case, seed=4)) != all_of(exact)


@every_private_case
def test_without_masks_each_site_adds_all_of_the_noise_on_every_runtime(case: Case):
    plain = all_of(run(case, secure="false"))
    assert all_of(run(case, "remote", secure="false")) == plain
    assert all_of(run(case, "threads", secure="false")) == plain


@every_case
@pytest.mark.parametrize(("runtime", "order"), [("local", "cba"), ("remote", "bca")])
def test_the_order_in_which_sites_are_given_changes_nothing(case: Case, runtime, order):
    same(run(case, runtime, order=order), reference(case))


@every_case
def test_only_declared_steps_are_asked_and_only_with_their_verbs(case: Case):
    verbs = {step.name: step.verb for step in case.entry.steps}
    asked = [json.loads(line) for line in reference(case).ledger]
    assert {(e["step"], e["verb"]) for e in asked} <= set(verbs.items())
    assert {e["site"] for e in asked} == set(tables(case.kind))


def steps_asked(case: Case) -> list[Any]:
    """Return the case's steps that a fit asks, each once."""
    names = {json.loads(line)["step"] for line in reference(case).ledger}
    return [step for step in case.entry.steps if step.name in names]


@every_case
@everywhere
def test_a_step_is_refused_under_the_other_verb_and_a_step_that_is_not_the_methods(
    case: Case, runtime
):
    fed = RUNTIMES[runtime](hosts_of(case, tables(case.kind)), None)
    for step in steps_asked(case):
        other = "gather" if step.verb == "sum" else "sum"
        said = f"^site 'a' refuses {other}.{step.name}.: only the {step.verb} of"
        with pytest.raises(VerbRefused, match=said):
            getattr(fed, other)(step)
    with pytest.raises(VerbRefused, match=r"^site 'a' does not know the step"):
        fed.gather(toys.flags)
    assert not fed.ledger.lines


@every_case
@everywhere
def test_a_site_that_fails_ends_the_fit_by_step_and_kind_and_tells_no_value(case: Case, runtime):
    found = {}
    for name in ("local", runtime):
        ledger = Ledger()
        with pytest.raises(SiteFailed, match=r"^site 'b' failed in step") as error:
            run(case, name, data={**tables(case.kind), "b": Unreadable()}, ledger=ledger)
        assert PLANTED not in str(error.value)
        found[name] = str(error.value).split()[5], ledger.lines
    assert found[runtime] == found["local"]


@every_case
@every_engine
@pytest.mark.parametrize("when", ["first", "middle"])
def test_a_fit_whose_site_was_gone_for_a_call_is_the_local_fit_that_lacked_it_there(
    case: Case, runtime, when
):
    """The site's end is stopped before the call, and another one started after it."""
    from conformance import engines

    calls = 1 + max(json.loads(line)["call"] for line in reference(case).ledger)
    gap = 0 if when == "first" else calls // 2
    net = engines.net(runtime)

    def observe(progress: Any) -> None:
        if progress.call == gap - 1:
            net.leave("c")
        elif progress.call == gap:
            net.join("c")

    if gap == 0:
        net.leave("c")
    try:
        there = without(case, runtime, observer=observe)
    finally:
        net.join(*net.gone)
    assert there == without(case, "local", absent=lambda call, site: (call, site) == (gap, "c"))


def without(case: Case, runtime: str, **options: Any) -> Any:
    """Fit although a site may be missing; return what that left, or what it ended with."""
    ledger = Ledger()
    try:
        found = run(case, runtime, quorum=0.6, ledger=ledger, **options)
    except FedcohortError as error:
        return type(error), str(error), ledger.lines
    return found.arrays, found.ledger, found.history


@every_case
def test_nothing_leaves_a_site_that_has_as_many_entries_as_it_has_rows(case: Case):
    """But codes of patients and slopes by them, where they are asked for, as the method says."""
    told = (
        ("encode.z", "answer_codes.slopes", "tell_codes.z")
        if ("shares", "codes") in case.settings
        else ()
    )
    if told:
        entry = case.entry
        assert entry.reveals_with is not None
        assert "latent code of each patient" in entry.reveals_with(
            entry.configure(dict(case.settings))
        )
        assert not any(s.name == "encode" for s in entry.asks(entry.configure({})))
    for line in map(json.loads, reference(case).ledger):
        for name, field in line["fields"].items():
            rows, where = len(tables(case.kind)[line["site"]].x), f"{line['step']}.{name}"
            assert rows not in field["shape"] or where in told, f"{where}: {field['shape']}"


@every_case
def test_a_fit_leaves_the_sites_data_as_it_was(case: Case):
    before = {k: [np.array(a) for a in t] for k, t in tables(case.kind).items()}
    run(case)
    for name, table in tables(case.kind).items():
        for was, now in zip(before[name], table, strict=True):
            assert_array_equal(was, now)


@every_case
@pytest.mark.parametrize(
    ("runtime", "share"),
    [("local", 0.0), ("local", 0.4), ("local", 0.999), ("remote", 0.4)],
)
def test_a_run_killed_on_its_way_resumes_to_the_same_end(case: Case, runtime, share, tmp_path):
    calls = 1 + max(json.loads(line)["call"] for line in reference(case).ledger)

    def kill(progress: Any) -> None:
        if progress.call == int(share * calls):
            raise Killed

    with pytest.raises(Killed):
        run(case, runtime, folder=tmp_path, observer=kill)
    for cut in (0, 5):
        journal = tmp_path / "journal"
        journal.write_bytes(journal.read_bytes()[: journal.stat().st_size - cut])
        same(run(case, runtime, folder=tmp_path), reference(case))


@pytest.mark.parametrize("case", [case for case in KEEPING if case.protects], ids=str)
@pytest.mark.parametrize("runtime", ["local", "remote"])
def test_a_private_fit_with_a_state_at_its_sites_resumes_to_the_same_end(
    case: Case, runtime, tmp_path
):
    def kill(progress: Any) -> None:
        if progress.call == 1:
            raise Killed

    with pytest.raises(Killed):
        run(case, runtime, folder=tmp_path, observer=kill)
    for cut in (0, 5):
        journal = tmp_path / "journal"
        journal.write_bytes(journal.read_bytes()[: journal.stat().st_size - cut])
        assert all_of(run(case, runtime, folder=tmp_path)) == all_of(run(case, runtime))


@every_case
def test_a_saved_model_predicts_the_same_bytes(case: Case):
    model = reference(case).model
    meta = json.loads(json.dumps(model.meta()))
    back = case.entry.model.restore({k: a.copy() for k, a in model.arrays().items()}, meta)
    json.dumps(meta, allow_nan=False)
    assert not any(np.isinf(a).any() for a in model.arrays().values() if a.dtype.kind == "f")
    x = tables(case.kind)["a"].x
    times = np.linspace(0, 2, 7)
    for what, arguments in (("predict", (x,)), ("predict_survival", (x, times))):
        if what in case.gives:
            assert_array_equal(getattr(back, what)(*arguments), getattr(model, what)(*arguments))
    if "summary" in case.gives:
        assert repr(back.summary()) == repr(model.summary())
    if "parameters" in case.gives:
        assert repr(back.parameters(times)) == repr(model.parameters(times))


X = tables("survival")["a"].x
CALLS: dict[str, tuple[Any, ...]] = {
    "predict": (X,),
    "predict_survival": (X, np.linspace(0, 2, 7)),
    "memberships": (X,),
    "transform": (X,),
    "reconstruct": (X,),
    "sample": (5, np.random.default_rng(0)),
    "impute": (X,),
    "impute_drawn": (X, np.random.default_rng(0)),
    "summary": (),
    "parameters": (np.linspace(0, 2, 3),),
    "splits": (),
    "others": (),
    "proportional_hazards": (),
    "proportional_odds": (),
    "curves": (),
    "at_round": (1,),
}


@every_case
def test_a_fit_gives_what_its_method_declares_and_nothing_else(case: Case):
    model, gives = reference(case).model, case.gives
    assert gives <= set(CALLS)
    for what in sorted(gives):
        assert getattr(model, what)(*CALLS[what]) is not None
    for what in sorted(set(CALLS) - case.entry.given(task_kind(case.kind))):
        with pytest.raises(NotSupported, match=f"^{what}$"):
            getattr(model, what)(*CALLS[what])


@every_survival_case
def test_a_higher_risk_is_a_lower_survival_and_survival_falls_from_one(case: Case):
    model = reference(case).model
    x, times = X, np.linspace(0, 3, 31)
    risk, alive = model.predict(x), model.predict_survival(x, times)
    assert risk.shape == (len(x),)
    assert alive.shape == (len(x), len(times))
    assert np.isfinite(risk).all()
    assert_array_equal(alive[:, 0], 1.0)
    assert ((alive >= 0) & (alive <= 1)).all()
    assert (np.diff(alive, axis=1) <= 1e-12).all()
    if case.method in CROSSING and ("head", "cox") not in case.settings:
        at_all = model.predict_survival(x, model.times)
        assert_allclose(-np.log(at_all).sum(axis=1), risk, atol=1e-9)
        return
    assert (np.diff(alive[np.argsort(risk)], axis=0) <= 1e-12).all()


@every_case
def test_a_small_site_where_nobody_died_or_all_are_equal_is_no_obstacle(case: Case):
    table = quiet(case.kind)
    fit = run(case, data={**tables(case.kind), "quiet": table})
    if "predict" in case.gives:
        assert np.isfinite(fit.model.predict(table.x)).all()


@every_case
def test_the_history_holds_a_round_and_finite_numbers(case: Case):
    history = reference(case).history
    assert "'round': 0.0" in history
    assert "nan" not in history
    assert "inf" not in history
