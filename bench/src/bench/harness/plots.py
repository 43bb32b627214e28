"""Plots as SVG texts that go into a page as they are.

Axes and letters are drawn in the page's own colour (`currentColor`), the background is left out, and the
series' colours read on white and on black, so one plot serves light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

#: Stands for the page's colour in what matplotlib draws; replaced in the text.
_INK = "#010203"
#: Of series, in their order.
COLORS = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#a855f7", "#6b7280")
#: More points than this are not told apart at the plots' size.
_POINTS = 1200

#: Pages that show a file cannot give it their colour, so it asks for their scheme itself.
_SCHEME = (
    "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}"
    "svg text{fill:currentColor}</style>"
)

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _INK,
    "grid.alpha": 0.12,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
}


def thinned(*series: np.ndarray) -> list[np.ndarray]:
    """The series at no more points than can be told apart."""
    length = len(series[0])
    if length <= _POINTS:
        return list(series)
    chosen = np.unique(np.linspace(0, length - 1, _POINTS).astype(int))
    return [values[chosen] for values in series]


def svg(name: str, draw: Callable[[Any], str | None]) -> str:
    """What `draw` draws on the axes it is given, as an SVG element; `name` is what it is called to those who listen.

    `draw` gives a text where there is nothing to show, which then says why.
    """
    # The salt keeps the ids of two plots in one page apart, and the same from run to run.
    settings: dict[str, Any] = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(settings):  # type: ignore[arg-type]
        figure = Figure(figsize=(6.4, 3.1), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        nothing = draw(axes)
        if nothing:
            axes.set_axis_off()
            axes.text(0.5, 0.5, nothing, ha="center", va="center", transform=axes.transAxes)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    # Groups are numbered from one in every figure; nothing refers to them.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        rf'viewBox="\1" role="img" aria-label="{name}">'
    )
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', head, text, count=1)


def standalone(text: str) -> str:
    """An SVG element as a file of its own; empty stays so."""
    head, bracket, rest = text.partition(">")
    return f"{head}{bracket}{_SCHEME}{rest}\n" if text else ""
