"""Sites on Flower's simulation; Ray is not part of any extra, so most of it runs where Ray is."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from conformance import cases as conformance
from fedcohort.protocol.errors import NotSupported
from fedcohort.protocol.host import Host
from fedcohort.runtime import flower_simulation
from fedcohort.runtime.answers import Answers
from fedcohort.runtime.line import Answering
from fedcohort.runtime.remote import remote
from fedcohort.runtime.site_end import SiteEnd

CASE = conformance.Case("cox", "survival", ())


def open_site(folder: str, site: str) -> Answering:
    """Open a site of the case in one of Ray's processes."""
    host = Host(site, conformance.tables("survival")[site], CASE.entry.steps, 3)
    return SiteEnd(site, lambda _run, _session: host, Answers(Path(folder) / site)).handle


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is here")
def test_without_ray_there_is_one_line_that_says_what_to_install():
    with pytest.raises(NotSupported, match=r"needs Ray: pip install 'flwr\[simulation\]'"):
        flower_simulation.simulate(partial(open_site, ""), ["a"], lambda line: None)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_a_fit_on_flowers_simulation_leaves_the_same_arrays_and_ledger_as_local(
    tmp_path, monkeypatch
):
    def program(line):
        monkeypatch.setitem(
            conformance.RUNTIMES,
            "simulation",
            lambda hosts, folder, **options: remote(line, "a study", "a fit", **options),
        )
        return conformance.run(CASE, "simulation")

    opened = partial(open_site, str(tmp_path))
    there = flower_simulation.simulate(opened, ["a", "b", "c"], program)
    here = conformance.reference(CASE)
    assert there.arrays == here.arrays
    assert there.ledger == here.ledger


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_what_a_program_raises_comes_out_of_the_simulation(tmp_path):
    def program(line):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        flower_simulation.simulate(partial(open_site, str(tmp_path)), ["a"], program)
