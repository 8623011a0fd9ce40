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

from fedcohort.study.run.cluster.client import OnCluster, check_address, check_study, opened

__all__ = ["OnCluster", "check_address", "check_study", "opened"]
