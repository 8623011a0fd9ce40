"""Virtual patients of a study: the parts of `report.virtual_parts`, by arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedcohort.report import virtual_parts
from fedcohort.report.charts import slug
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit

#: Lists of results.json, by the part that shows them.
LISTS: Mapping[str, str] = {
    "privacy": "virtual_privacy", "use": "virtual_scores", "survival": "virtual_curves",
    "marginals": "virtual_marginals", "correlations": "virtual_correlations",
}  # fmt: skip


def section_of(part: str) -> Callable[[Run], Section | None]:
    """Return the function that makes one part's section of a run's page."""

    def section(run: Run) -> Section | None:
        found: dict[str, Section] = {}

        def draw(fit: Fit):
            name = f"virtual-{slug(f'{fit[0].name}-{fit[1]}')}"
            made = _sections(run, fit, name).get(part)
            if made is None:
                return None
            found.setdefault("first", made)
            return made.body

        body = clustered.folded(run, LISTS[part], draw)
        if body is None:
            return None
        first = found["first"]
        return Section(f"virtual-{part}", first.short, first.title, first.intro, body)

    return section


def _sections(run: Run, fit: Fit, name: str) -> dict[str, Section]:
    """Return the sections of one fit's virtual rows, by part."""
    rows = {key: clustered.rows(run, key, fit) for key in LISTS.values()}
    own = {key: [r for r in found if not r["reference"]] for key, found in rows.items()}
    reference = {key: [r for r in found if r["reference"]] for key, found in rows.items()}
    unit = str(run.mapping("outcome").get("time_unit") or "")
    made = virtual_parts.blocks(name, own, unit, reference)
    return {s.key.removeprefix(f"{name}-"): s for s in made}
