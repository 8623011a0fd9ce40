"""Sites on Flower's simulation: its nodes on Ray, in processes of this computer.

For those who have Flower and Ray and want many sites at once; `runtime.local` needs neither and is
faster. Ray runs a message in any of its processes, so what a site remembers must lie on the disk,
as a node's `Answers` do; a process opens a site once and keeps it.

    >>> simulate(open_site, ["a", "b"], lambda line: dict(line.exchange({"a": b"x"}, 60)))

A node has no name of its own on Flower: it has a number, and a partition that this module turns
into the site's name. Flower tells its maker about simulations, and Ray its own, unless told not to,
which this module does.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from fedcohort.protocol.errors import NotSupported, SiteUnavailable
from fedcohort.runtime.line import Answering, Line

T = TypeVar("T")

_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

#: Seconds that Ray may take to give each node its first answer.
START = 120.0

#: What this process has opened: (simulation, site) → answerer.
_open: dict[tuple[str, str], Answering] = {}


def simulate(
    open_site: Callable[[str], Answering],
    sites: Sequence[str],
    program: Callable[[Line], T],
    *,
    processors: float = 1.0,
) -> T:
    """Run a program over sites that are nodes of Flower's simulation.

    Parameters
    ----------
    open_site : name → answerer; called in Ray's processes, so it must be such as can be sent there.
    processors : of each node while it answers; with fewer processors than sites they take turns.

    Raises
    ------
    NotSupported : Flower or Ray is not installed.
    SiteUnavailable : not all nodes came up.
    """
    for module, name in (("flwr", "fedcohort[flower]"), ("ray", "flwr[simulation]")):
        if find_spec(module) is None:
            title = "Flower" if module == "flwr" else "Ray"
            raise NotSupported(f"Flower's simulation needs {title}: pip install '{name}'.")
    os.environ.update(_OFFLINE)
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
    from flwr.supercore import telemetry

    from fedcohort.runtime.flower_line import FlowerLine, quiet

    quiet()
    cast(Any, telemetry).FLWR_TELEMETRY_ENABLED = "0"  # where flwr was imported before this call
    ended = list[tuple[bool, Any]]()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # pyright: ignore[reportUnusedFunction]
        try:
            ended.append((True, program(FlowerLine(grid, _numbers(grid, sites)))))
        except BaseException as error:
            ended.append((False, error))

    app = _app(uuid.uuid4().hex, tuple(sites), open_site)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_simulation(
            server,
            app,
            len(sites),
            backend_config={
                "init_args": {"log_to_driver": False, "logging_level": logging.ERROR},
                "client_resources": {"num_cpus": processors, "num_gpus": 0.0},
            },
        )
    good, value = ended[0]
    if not good:
        raise value
    return value


def _app(simulation: str, sites: tuple[str, ...], open_site: Callable[[str], Answering]) -> Any:
    """Return the nodes' end: `query.call` for bytes, `query.name` for who it is."""
    from flwr.app import Context, Message

    from fedcohort.runtime.flower_line import client_app, pack

    def named(context: Context) -> str:
        return sites[int(cast(int, context.node_config["partition-id"]))]

    def answerer(context: Context) -> Answering:
        return _opened(simulation, named(context), open_site)

    app = client_app(answerer)

    @app.query("name")
    def name(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        return Message(pack(named(context).encode()), reply_to=message)

    return app


def _opened(simulation: str, site: str, open_site: Callable[[str], Answering]) -> Answering:
    """Return a site's answerer, opened once in each process."""
    if (simulation, site) not in _open:
        _open[simulation, site] = open_site(site)
    return _open[simulation, site]


def _numbers(grid: Any, sites: Iterable[str]) -> dict[str, int]:
    """Ask the nodes who they are; return Flower's number of each site."""
    from flwr.app import Message, RecordDict

    from fedcohort.runtime.flower_line import unpack

    until, wanted = time.monotonic() + START, set(sites)
    asked, found = set[int](), dict[str, int]()
    waiting = dict[str, int]()
    while set(found) != wanted:
        if time.monotonic() > until:
            raise SiteUnavailable(f"{len(found)} of {len(wanted)} nodes came up in {START:g} s.")
        new = [node for node in grid.get_node_ids() if node not in asked]
        if new:
            asked.update(new)
            numbers = grid.push_messages([Message(RecordDict(), n, "query.name") for n in new])
            waiting.update(zip(numbers, new, strict=True))
        for reply in grid.pull_messages(list(waiting)) if waiting else ():
            node = waiting.pop(reply.metadata.reply_to_message_id)
            if reply.has_content():
                found[unpack(reply.content).decode()] = node
        time.sleep(0.05)
    return found
