"""The report's pictures: Vega-Lite charts as static SVG inside the page, each with its data.

`figure` draws a chart 720 px wide; on a narrow screen it scrolls sideways. Below its caption are
links to the picture as SVG and its data as CSV. No script is in the page and nothing is loaded.
The charts:

interval_rows(rows, x_title, *, log=False, reference=None, band=None, domain=None, heads=None,
legend=())
    one `Row` a line: name, mark with interval, the numbers as text (bounds, forest plots);
    ``kind="pooled"`` is a diamond from low to high, ``kind="heading"`` a line of text.
bars(rows, x_title, *, domain=None)
    the same lines as bars from zero, with whiskers if a row has an interval.
lines_with_bands(series, x_title, y_title, *, x_domain=None, y_domain=None, reference=None,
whole=False, own=False, powers=False, upright=None, log=False, marks=False, width=720)
    one `Series` a line, with a band if points have low and high; a panel for each
    ``Series.panel``, with `own` axes or common ones; `reference` is a horizontal line, `upright`
    a vertical one; `marks` are at all points.
histograms(shaded, outlined, x_title, y_title, *, x_domain=None)
    `Series` of cells, from 0 upwards: some shaded, others as outlines on them; a panel for each
    ``Series.panel``.
curves_with_risk_table(series, x_title, y_title="survival", *, x_domain=None, y_domain=(0, 1))
    Kaplan-Meier curves, ``Series.at_risk`` as numbers below, each at a tick; a panel for each
    ``Series.panel``.
scatter_with_diagonal(series, x_title, y_title, *, domain=(0, 1), marks=True)
    square panels with the diagonal: calibration (marks), ROC (no marks).
ellipses(found, x_title, y_title)
    one `Ellipse` a group, a panel for each ``Ellipse.panel``, with one unit on both axes.
dots(found, x_title, y_title)
    one `Dot` a point, for places without a unit: axes without numbers.
grid(one)
    a `Grid` of rows by columns, cells as dark as their values, with short texts.
pictures(groups, shape)
    one `Group` a line: its average and its patients as pictures, a cell for each feature; a page
    has room for ``most_groups(shape, patients)``.

Each returns a Vega-Lite specification, `Spec`: ``figure("importance-cox", title, note, bars(rows,
"drop"), rows_of_the_csv, alt_text)``. A figure should fit a printed page: at most `MOST_ROWS` rows
or `MOST_PANELS` panels.

Looks, for `Row.look` and `Series.look`: ``c0`` … ``c7``, ``lower``, ``upper``, ``faint``; an arm's
is `Arm.look`. Colours are the variables of `report.css`, so one drawing serves light, dark and
print. A user's texts reach the drawing as data only.

Vega is slow to load, so only `page`, `plots` and the sections import this package.
"""

from fedcohort.report.charts.cells import Group, Heat, cut_off, heats, most_groups, pictures
from fedcohort.report.charts.figures import figure, slug
from fedcohort.report.charts.grids import Grid, grid
from fedcohort.report.charts.page_figures import current, together
from fedcohort.report.charts.parts import Series
from fedcohort.report.charts.plane import Dot, Ellipse, dots, ellipses
from fedcohort.report.charts.render import draw, stacked, standalone
from fedcohort.report.charts.rows import Row, bars, interval_rows
from fedcohort.report.charts.scales import Domain, around, ticks, wrapped
from fedcohort.report.charts.theme import LOOKS, MOST_PANELS, MOST_ROWS, Spec, shape
from fedcohort.report.charts.xy import (
    curves_with_risk_table,
    histograms,
    lines_with_bands,
    scatter_with_diagonal,
)

__all__ = [
    "Domain",
    "Dot",
    "Grid",
    "Ellipse",
    "Group",
    "Heat",
    "LOOKS",
    "MOST_PANELS",
    "MOST_ROWS",
    "Row",
    "Series",
    "Spec",
    "around",
    "bars",
    "curves_with_risk_table",
    "current",
    "cut_off",
    "dots",
    "draw",
    "ellipses",
    "figure",
    "grid",
    "heats",
    "histograms",
    "interval_rows",
    "lines_with_bands",
    "most_groups",
    "pictures",
    "scatter_with_diagonal",
    "shape",
    "slug",
    "stacked",
    "standalone",
    "ticks",
    "together",
    "wrapped",
]
