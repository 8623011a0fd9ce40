"""Sites that lie, on a packaged sample: what they say, and how they are heard.

A lie is told after the site's own checks, as by a site whose software was changed: in one process
(`Lying`, around a transport) or in the bytes of its replies (`lying_end`, around a site's end).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
import pandas as pd

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.wire import decode
from fedcohort.runtime.calls import Request, reply_bytes
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport
from fedcohort.runtime.reply_store import Answers
from loopback import LoopbackLine

#: What no honest site can say: to be rejected by name.
IMPOSSIBLE = (
    "nan", "inf", "wrong shape", "wrong dtype", "-9 rows", "10^12 rows", "weight without rows",
    "stale reply", "extra field", "missing field",
)  # fmt: skip
#: What is out of proportion.
LARGE = ("scaled x10", "scaled x1000", "constant")
#: What an honest site with other patients might say: to be out-voted.
PLAUSIBLE = ("sign flip", "label flip")
KINDS = (*IMPOSSIBLE, *LARGE, *PLAUSIBLE)

Arrays = dict[str, Any]

#: The field of a reply that holds the model, and how many rows it is multiplied by.
_MODEL = {"train_here": "theta", "visit": "theta", "train_alone": "thetas", "pull": "gradient"}


def steps_of(kind: str, strategy: str) -> tuple[str, ...]:
    """Return the steps whose replies a liar of this kind forges."""
    about_rows = "rows" in kind
    if strategy == "exact":
        return ("count_deaths",) if about_rows else ("pull",)
    return ("train_here", "visit", "train_alone")


def forged(kind: str, step: str, said: Mapping[str, Any], asked: Mapping[str, Any]) -> Arrays:
    """Return what a liar says in place of `said`."""
    out: Arrays = {k: np.array(a) for k, a in said.items()}
    model = _MODEL.get(step, next(iter(out)))
    rows = "weight" if "weight" in out else "rows"
    match kind:
        case "nan" | "inf":
            out[model].flat[0] = np.nan if kind == "nan" else np.inf
        case "wrong shape":
            out[model] = out[model][..., :-1]
        case "wrong dtype":
            out[model] = out[model].astype(np.float32)
        case "-9 rows" | "10^12 rows" | "weight without rows":
            out[rows] = np.array({"-9 rows": -9.0, "10^12 rows": 1e12}.get(kind, 0.0))
        case "extra field":
            out["more"] = np.zeros(1)
        case "missing field":
            del out[list(out)[-1]]
        case "scaled x10" | "scaled x1000" | "sign flip" | "constant":
            out[model] = _moved(kind, step, out, asked)
        case _:
            pass
    return out


def _moved(kind: str, step: str, out: Arrays, asked: Mapping[str, Any]) -> Any:
    """Return a model, or its multiple by rows, that is moved as the liar wants."""
    start = 0.0 if step == "pull" else asked["theta"]
    times = float(out["rows"]) if step == "train_here" else 1.0
    update = out[_MODEL[step]] / times - start
    if kind == "constant":
        return times * (np.zeros_like(update) + 1.0)
    by = {"scaled x10": 10.0, "scaled x1000": 1000.0, "sign flip": -1.0}[kind]
    return times * (start + by * update)


# how they are heard --------------------------------------------------------------------


class Lying:
    """A transport in which some sites lie.

    Attributes
    ----------
    told : how many lies were told.
    """

    def __init__(
        self, inner: LocalTransport, liars: Sequence[str], kind: str, steps: Sequence[str]
    ):
        self._inner, self._liars, self._kind, self._steps = inner, liars, kind, steps
        self._last: dict[str, Arrays] = {}
        self.told = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ask(self, call: Call, to: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield the replies, some of them forged."""
        for site, reply in self._inner.ask(call, to):
            if site in self._liars and call.step.name in self._steps and isinstance(reply, dict):
                if self._kind != "stale reply":
                    self.told += 1
                reply = forged(self._kind, call.step.name, reply, call.arguments.at(site))
            yield site, reply


def lying_end(
    end: Callable[[bytes], bytes], kind: str, steps: Sequence[str], told: list[int]
) -> Callable[[bytes], bytes]:
    """Return a site's end whose replies are forged; each lie adds its call to `told`."""
    last: list[bytes] = []

    def answer(body: bytes) -> bytes:
        reply = end(body)
        request = Request.read(body)
        arrays, meta = decode(reply)
        if meta.get("kind") != "reply":
            return reply
        last.append(reply)
        if request.step not in steps or (kind == "stale reply" and len(last) < 2):
            return reply
        told.append(request.call)
        if kind == "stale reply":
            return last[-2]
        said = forged(kind, request.step, arrays, request.parcel.open())
        return reply_bytes(request.history, request.call, said)

    return answer


# sites ---------------------------------------------------------------------------------


def sample() -> SurvivalTable:
    """Return the packaged sample gbsg2, 686 patients, standardised: x (n, 9)."""
    table = pd.read_csv(str(files("fedcohort.data") / "samples" / "gbsg2.csv"))
    x = pd.get_dummies(table.drop(columns=["time", "cens"]), drop_first=True).to_numpy(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return SurvivalTable(x, table.time.to_numpy(float), table.cens.to_numpy(bool))


def some(table: SurvivalTable, rows: Any) -> SurvivalTable:
    """Return some rows."""
    return SurvivalTable(table.x[rows], table.time[rows], table.event[rows])


def sites_of(table: SurvivalTable, n: int, seed: int) -> dict[str, SurvivalTable]:
    """Return the rows dealt at random to n sites."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(table.time)), n)
    return {f"site-{i}": some(table, part) for i, part in enumerate(parts)}


def flipped(table: SurvivalTable) -> SurvivalTable:
    """Return the rows with their times in reverse order: who died first is said to die last."""
    return SurvivalTable(table.x, table.time.max() + table.time.min() - table.time, table.event)


def federation(
    tables: Mapping[str, SurvivalTable],
    liars: Sequence[str],
    kind: str,
    strategy: str,
    *,
    as_bytes: bool = False,
    seed: int = 0,
) -> tuple[Coordinator, Callable[[], int]]:
    """Return a federation in which some sites lie, without masks, and the number of lies told."""
    if kind == "label flip":
        tables = {s: flipped(t) if s in liars else t for s, t in tables.items()}
    hosts = [Host(name, table, METHOD.steps, seed) for name, table in tables.items()]
    steps = steps_of(kind, strategy)
    lies = kind not in ("label flip", "none")
    if not as_bytes:
        transport: Any = LocalTransport(hosts)
        if lies:
            transport = Lying(transport, liars, kind, steps)
        fed = Coordinator(transport, quorum=0.5, secure="false")
        return fed, lambda: transport.told if lies else 0
    from fedcohort.runtime.remote import remote
    from fedcohort.runtime.site.site_end import SiteEnd

    told: list[int] = []
    ends: dict[str, Callable[[bytes], bytes]] = {}
    for host in hosts:
        end = SiteEnd(host.name, lambda _r, _s, host=host: host, Answers(Path(":memory:"))).handle
        liar = lies and host.name in liars
        ends[host.name] = lying_end(end, kind, steps, told) if liar else end
    fed = remote(LoopbackLine(ends), "study", "fit", quorum=0.5, secure="false")
    return fed, lambda: len(told)
