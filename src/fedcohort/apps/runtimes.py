"""Runtimes of `fedcohort run`, and the options that go with each."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fedcohort.protocol.errors import InputError, StudyError

LOCAL, DEPLOYED = ("local", "flower-sim"), ("flare", "flower")

#: Runtimes that need more than fedcohort: the engine, its extra, and the packages of that.
NEEDS = {
    "flare": ("NVIDIA FLARE", "flare", ("nvflare",)),
    "flower": ("Flower", "flower", ("flwr",)),
    "flower-sim": ("Flower", "flower", ("flwr",)),
}


def check(
    runtime: str,
    network: Path | None,
    wait: float | None,
    timeout: float | None,
    cancel: bool,
    cluster: str = "",
) -> None:
    """Check that the options of a run go together.

    Raises
    ------
    StudyError : they do not, or the runtime is unknown.
    InputError : the runtime's packages are not installed.
    """
    known = (*LOCAL, *DEPLOYED)
    if runtime not in known:
        from fedcohort.study.file.yamlfile import nearest

        raise StudyError(f"--runtime {runtime}: not known; {nearest(runtime, known)}")
    title, extra, packages = NEEDS.get(runtime, ("", "", ()))
    if not all(map(find_spec, packages)):
        raise InputError(f"--runtime {runtime} needs {title}: pip install 'fedcohort[{extra}]'.")
    if cluster and runtime != "local":
        raise StudyError(f"--cluster goes with --runtime local, not with {runtime}.")
    if runtime in DEPLOYED:
        if network is None:
            raise StudyError(
                f"--runtime {runtime} needs --network KIT, the folder of a lead's kit; "
                f"'fedcohort network new' makes one."
            )
        return
    given = {"--network": network, "--wait": wait, "--timeout": timeout, "--cancel": cancel or None}
    for name, value in given.items():
        if value is not None:
            raise StudyError(f"{name} goes with --runtime flare or flower, not with {runtime}.")
