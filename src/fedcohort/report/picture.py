"""A picture that stands for itself: one SVG that needs nothing else, shown and saved."""

from __future__ import annotations

import html
from pathlib import Path

from fedcohort.protocol import SettingError
from fedcohort.report.charts import render
from fedcohort.report.charts.theme import WIDE, Draw

#: How a page begins that shows a picture as wide as there is room for.
PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<style>svg{max-width:100%;height:auto}</style>"
)


class Picture:
    """A picture that a notebook shows and that can be saved.

    Attributes
    ----------
    svg : the picture, as a file of its own.
    title : what it shows.
    """

    def __init__(self, svg: str, title: str):
        self.svg, self.title = svg, title

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the picture as the path's suffix says: .svg, .png or .html.

        Raises
        ------
        SettingError : another suffix.
        """
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".png":
            import vl_convert

            path.write_bytes(vl_convert.svg_to_png(self.svg, scale=2))
        elif kind == ".svg":
            path.write_text(self.svg, encoding="utf-8")
        elif kind == ".html":
            head = f"{PAGE}<title>{html.escape(self.title)}</title>"
            path.write_text(f"{head}\n{self.svg}\n", encoding="utf-8")
        else:
            raise SettingError(
                f"{path.name!r} does not end in .svg, .png or .html; name the picture so."
            )


def drawn(charts: Draw | list[Draw], title: str, said: str) -> Picture:
    """Return charts below each other, with their title and what a reader is told who sees none."""
    every = charts if isinstance(charts, list) else [charts]
    drawing = render.stacked([render.draw(chart(WIDE)) for chart in every])
    return Picture(render.standalone(drawing, title, said), title)
