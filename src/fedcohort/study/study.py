"""A study in Python: the same file and results as on the command line.

    study = fc.Study.from_file("study.yaml")
    results = study.run()
    results.report("report.html")

`Study` is a checked file with its data; `Results` is the folder of a finished run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedcohort.data.read.sources import MEMORY, MEMORY_BY_SITE
from fedcohort.protocol import InputError
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.run import runner
from fedcohort.study.run.folder import default_folder
from fedcohort.study.run.showing import line, of_pieces
from fedcohort.study.sites import few_sites, layout


@dataclass(frozen=True)
class Results:
    """A finished study's folder, and the content of its results.json."""

    folder: Path
    content: dict[str, Any]

    @classmethod
    def from_folder(cls, folder: str | Path) -> Results:
        """Read a finished study.

        Raises
        ------
        DataError : there is no results.json, or it is damaged or of another version.
        """
        from fedcohort.report.run import read

        return cls(Path(folder), dict(read(Path(folder)).results))

    @property
    def summary(self) -> pd.DataFrame:
        """Mean, sd and 95 % interval of each metric, by arm and scenario."""
        return pd.DataFrame(self.content["summary"])

    @property
    def metrics(self) -> pd.DataFrame:
        """Every metric of every arm, scenario, repeat and site."""
        return pd.read_csv(self.folder / "metrics.csv")

    @property
    def failures(self) -> list[str]:
        """Arms that failed, each with its reason, once."""
        found = {
            f"{row['arm']} ({row['scenario']}): {row['status'].removeprefix('failed: ')}": None
            for row in self.content["arms"]
            if row["status"] != "done"
        }
        return list(found)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one self-contained HTML file; return its path."""
        from fedcohort import report

        return report.write(self.folder, None if path is None else Path(path))


@dataclass(frozen=True)
class Study:
    """A checked study with its data."""

    plan: plan.Plan
    table: layout.Table

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        data: Any = None,
        overrides: Iterable[str] = (),
        seed: int | None = None,
    ) -> Study:
        """Read a study file and its data, and check both.

        Parameters
        ----------
        data : replaces the file's source: a pandas or Polars frame, or a mapping from site names to
            frames.
        overrides : ``key.path=value`` assignments that replace the file's values.
        seed : replaces the file's.

        Raises
        ------
        StudyError : an unknown key, an impossible value; the file and line are named.
        DataError : the table does not fit the study file.
        """
        path = Path(path)
        doc = yamlfile.read(path)
        for assignment in overrides:
            doc = doc.with_override(assignment)
        if seed is not None:
            doc = doc.with_override(f"seed={seed}")
        if data is not None:
            name = MEMORY_BY_SITE if isinstance(data, Mapping) else MEMORY
            doc = doc.with_override(f"data.source='{name}'")
            doc.content["data"].pop("query", None)
        checked = plan.check(doc, path.parent)
        table = layout.load(checked, data)
        try:
            checked.kind.check(table.outcome)
        except InputError as error:
            raise doc.error(("data",), str(error)) from None
        repeats = checked.repeats if checked.local else 1
        names: dict[str, list[str]] = {}
        firsts = [s for s in checked.scenarios if not s.after_ranking]
        for i, scenario in enumerate(firsts):
            try:
                for repeat in range(repeats):
                    laid = layout.lay_out(checked, table, scenario, repeat)
                    names[scenario.name] = list(laid.problem.frames)
            except InputError as error:
                where = ("scenarios", i) if "scenarios" in doc.content else ("data", "sites")
                raise doc.error(where, str(error)) from None
        few_sites.check_named(checked, names)
        return cls(checked, table)

    def run(
        self,
        out: str | Path | None = None,
        *,
        resume: bool = False,
        workers: int | None = None,
        tell: runner.OnEvent | None = None,
        command: str = "Study.run()",
        debug: bool = False,
        runtime: str = "local",
        cluster: str = "",
        progress: bool | None = None,
    ) -> Results:
        """Run every arm and write the results and the report.

        Parameters
        ----------
        out : folder of the results; default ``runs/<study>``.
        resume : continue a stopped run.
        workers : number of processes, by default one; more need an importable main module. With
            Slurm, number of jobs at once, by default 16.
        tell : called with each `Event`, for progress displays.
        debug : raise an unexpected error; otherwise the fit fails.
        runtime : "local", or "flower-sim": every fit uses Flower's messages.
        cluster : address of a Dask scheduler, such as ``tcp://scheduler:8786``, or "slurm": fits
            run there (``docs/cluster.md``).
        progress : without `tell`, whether the fits done and the time left are shown, from 2 s on.
            Default: on a terminal and in a notebook, not in a log.
        """
        folder = Path(out) if out is not None else default_folder(self.plan, resume)
        with line(self.plan.study, "fits", progress if tell is None else False) as shown:
            found = runner.run(
                self.plan,
                self.table,
                folder,
                resume=resume,
                workers=workers,
                tell=tell or of_pieces(shown),
                command=command,
                debug=debug,
                runtime=runtime,
                cluster=cluster,
            )
        results = Results(folder, found)
        results.report()
        return results
