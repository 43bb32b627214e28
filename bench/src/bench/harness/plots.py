"""Plots as SVG texts that are embedded into a page.

Axes and letters have the page's own color (`currentColor`), the background is transparent, and the series' colors are
readable on white and on black, so one plot fits light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import LogLocator, NullFormatter

#: A color that is replaced by the page's color in matplotlib's output.
_INK = "#010203"
#: The colors of series, in their order.
COLORS = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#a855f7", "#6b7280")
#: More points cannot be distinguished at the plots' size.
_POINTS = 1200

#: A page that displays a file cannot set its color, so the file reads the color scheme itself.
_SCHEME = (
    "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}svg text{fill:currentColor}</style>"
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


@cache
def _use_own_fonts() -> None:
    """Measure texts with the fonts that matplotlib brings.

    Its cache of the machine's fonts may lack the default font, without which it cannot draw, and may name files that
    have been deleted.
    """
    fontManager.ttflist.clear()
    for file in sorted(Path(mpl.get_data_path(), "fonts", "ttf").glob("DejaVuSans*.ttf")):
        fontManager.addfont(file)


def log_axis(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2, 5, 10 and so on."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def thinned(*series: np.ndarray) -> list[np.ndarray]:
    """Return the series with at most the points that can be distinguished."""
    length = len(series[0])
    if length <= _POINTS:
        return list(series)
    chosen = np.unique(np.linspace(0, length - 1, _POINTS).astype(int))
    return [values[chosen] for values in series]


def svg(name: str, draw: Callable[[Any], str | None]) -> str:
    """Return what `draw` draws on the given axes as an SVG element; `name` is its accessible name.

    `draw` returns a text if there is no data, which is displayed instead.
    """
    # The salt makes the ids of two plots in one page different, and equal from run to run.
    settings: dict[str, Any] = {**_STYLE, "svg.hashsalt": name}
    _use_own_fonts()
    with mpl.rc_context():
        # Without the settings of the user's matplotlibrc.
        mpl.rcdefaults()
        mpl.rcParams.update(settings)  # type: ignore[arg-type]
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
    """Return an SVG element as a file of its own; empty for an empty text."""
    head, bracket, rest = text.partition(">")
    return f"{head}{bracket}{_SCHEME}{rest}\n" if text else ""
