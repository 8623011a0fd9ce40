"""Does the pieces of a study on a cluster: tasks of a Dask scheduler, or jobs of Slurm.

* `at_worker`: a worker does one piece, in a folder of its own below `.work/attempts/`.
* `client`: this machine hands out pieces, and moves the files of a finished one into the run.
* `dask_tasks`, `slurm_jobs`: the two ways to hand them out.

Tasks are a function's name with text: the study file's content and a piece's numbers. Results are
JSON text; models and ledgers are files on storage that all machines share. Dask and submitit send
both in pickles, and who reaches a Dask scheduler can run code on it: a cluster is for machines of
one institution that trust each other (`docs/cluster.md`).

Revealed: nothing; a simulation's tables are on one institution's storage.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from fedcohort.protocol import InputError
from fedcohort.study.run.cluster.client import Cluster, OnCluster, check_study

__all__ = ["Cluster", "OnCluster", "check_address", "check_study", "opened"]

#: `--cluster` besides an address, each with submitit's name of it; `slurm-local` starts the jobs as
#: processes of this machine.
JOBS = {"slurm": "slurm", "slurm-local": "local"}
#: Schemes of a Dask scheduler's address.
SCHEMES = ("tcp", "tls")
#: Jobs of Slurm at once, if the user does not say.
AT_ONCE = 16


def check_address(address: str) -> None:
    """Check the form of `--cluster`, and that its packages are installed.

    Raises
    ------
    InputError : as above.
    """
    parts = urlsplit(address)
    try:
        fine = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:  # no port number
        fine = False
    if not fine and address not in JOBS:
        raise InputError(
            f"--cluster {address}: give the address of a Dask scheduler, such as "
            f"tcp://scheduler:8786 or tls://scheduler:8786, or 'slurm'."
        )
    if find_spec("submitit" if address in JOBS else "distributed") is None:
        raise InputError(f"--cluster {address} needs packages: pip install 'fedcohort[cluster]'.")


def opened(address: str, out: Path, jobs: int | None) -> Cluster:
    """Connect to a cluster.

    Parameters
    ----------
    jobs : largest number of Slurm jobs at once; Dask has as many tasks at once as workers.

    Raises
    ------
    FedcohortError : it is not there.
    """
    check_address(address)
    if address in JOBS:
        from fedcohort.study.run.cluster.slurm_jobs import Slurm

        return Slurm(JOBS[address], out, jobs or AT_ONCE)
    from fedcohort.study.run.cluster.dask_tasks import Dask

    return Dask(address)
