"""The page: head, sections in order, styles; one self-contained file.

Its Content-Security-Policy forbids loading anything, and it holds no script: it cannot change after
it was written, and opening it tells nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fedcohort.report import words
from fedcohort.report.charts import current, together
from fedcohort.report.helper import Helper
from fedcohort.report.markup import Markup, filled, h, p, styles
from fedcohort.report.run import Run
from fedcohort.report.sections import (
    bounds,
    calibration,
    classes,
    cluster_features,
    cluster_map,
    clusters,
    coefficients,
    cohort,
    consent,
    cost,
    differences,
    discrimination,
    explained,
    feature_map,
    given,
    headline,
    hospitals,
    imputed,
    latent_errors,
    latent_map,
    latent_numbers,
    latent_views,
    local,
    model,
    own_models,
    paper,
    posterior,
    protections,
    replies,
    settings,
    training,
    validation,
    virtual,
)
from fedcohort.report.sections.base import Section

#: Bytes that a page may have.
LIMIT = 3_000_000
_FILE = re.compile(r'<a class="get" download="[^"]*" href="data:[^"]*" title="[^"]*">(SVG|CSV)</a>')

#: In the order of the page; one that has nothing to show returns None.
SECTIONS: Sequence[Callable[[Run], Section | None]] = (
    clusters.clusters,
    cluster_features.section,
    clusters.cluster_survival,
    clusters.cluster_confusion,
    cluster_map.cluster_map,
    cluster_map.cluster_images,
    bounds.section,
    *map(virtual.section_of, virtual.LISTS),
    imputed.imputation_errors,
    latent_errors.latent_errors,
    latent_errors.latent_filled,
    latent_map.latent_map,
    latent_numbers.section,
    latent_views.section,
    latent_map.latent_sites,
    hospitals.sites,
    local.local,
    own_models.section,
    given.section,
    differences.others,
    consent.section,
    cohort.section,
    differences.shift,
    differences.feedback,
    discrimination.discrimination,
    classes.section,
    discrimination.values,
    hospitals.centres,
    calibration.calibration,
    calibration.decision,
    discrimination.accuracy,
    model.risk_groups,
    posterior.section,
    coefficients.section,
    model.hazards,
    model.odds,
    model.splits,
    explained.section,
    model.importance,
    feature_map.section,
    training.curves,
    training.mixing,
    validation.section,
    settings.absent,
    replies.left,
    replies.budget,
    protections.section,
    cost.cost,
    cost.carbon,
    settings.tripod,
    paper.section,
    settings.settings,
    settings.reproduce,
)


def render(run: Run, helper: Helper | None = None) -> str:
    """Return the page of a run as HTML; a helper draws some of its figures."""
    study = str(run.results.get("study", "study"))
    version = run.mapping("versions").get("fedcohort")
    with together(helper):
        sections = [s for make in SECTIONS if (s := make(run)) is not None]
        words_used = [h("h2", "Words used here", class_="minor"), headline.glossary(run)]
        return document(study, headline.top(run), sections, words_used, str(version or ""))


def document(
    name: str,
    top: Markup,
    sections: Sequence[Section],
    words_used: Sequence[Markup] = (),
    version: str = "",
) -> str:
    """Return a page: head, list of contents, sections and foot.

    Parameters
    ----------
    name : stands in the title, and on every printed page.
    top : content before the list of contents.
    words_used : words that the foot explains.
    version : of the software that wrote it.
    """
    css = styles() + Markup(_running_head(name))
    title = f"{name} – fedcohort report"
    page = filled(
        "page.html", title=title, css=css, top=top, sections=sections, words_used=words_used,
        version=version,
    )  # fmt: skip
    figures = current()
    return _small(figures.completed(page) if figures else page)


def _small(page: str) -> str:
    """Return the page within its limit, with a note where files were left out for that."""
    size = LIMIT - 1_000  # room for the note
    page, left_out = thinned(page, size)
    if not left_out:
        return page
    note = p(
        f"To keep this page below {words.size(LIMIT)}, it leaves out "
        f"{words.of(left_out, 'of the files', 'of the files')} that its figures offer, the largest "
        "first; all numbers are in results.json beside it."
    )
    body, end, rest = page.rpartition("</footer>")
    return f"{body}{note}{end}{rest}"


def thinned(page: str, limit: int = LIMIT) -> tuple[str, int]:
    """Return a page of at most so many bytes, and the number of files left out for that.

    Pictures go before data, the largest first. The visible page stays, so one that is too large
    without files remains too large.
    """
    excess = len(page.encode("utf-8", "replace")) - limit
    files = sorted(_FILE.finditer(page), key=lambda m: (m[1] != "SVG", -len(m[0])))
    gone: set[int] = set()
    for m in files:
        if excess <= 0:
            break
        gone.add(m.start())
        excess -= len(m[0])
    return _FILE.sub(lambda m: "" if m.start() in gone else m[0], page), len(gone)


def _running_head(study: str) -> str:
    """Return the rule that prints the study's name on every page, each odd letter as its code."""
    name = "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in study)
    font = "font: 8pt sans-serif; color: #555;"
    return f'@media print {{ @page {{ @top-right {{ content: "{name}"; {font} }} }} }}\n'
