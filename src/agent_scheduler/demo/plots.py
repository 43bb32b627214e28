"""Plots of a run as SVG texts that go into a page as they are.

Axes and letters are drawn in the page's own colour (`currentColor`), the background is left out, and the
series' colours read on white and on black, so one plot serves light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from .measure import Sample
from .outcome import Outcome

#: Stands for the page's colour in what matplotlib draws; replaced in the text.
_INK = "#010203"
#: Of series, in their order.
COLORS = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#a855f7", "#6b7280")
#: More points than this are not told apart at the plots' size.
_POINTS = 1200

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


def _thinned(*series: np.ndarray) -> list[np.ndarray]:
    length = len(series[0])
    if length <= _POINTS:
        return list(series)
    chosen = np.unique(np.linspace(0, length - 1, _POINTS).astype(int))
    return [values[chosen] for values in series]


def svg(name: str, draw: Callable[[Any], None]) -> str:
    """What `draw` draws on the axes it is given, as an SVG element; `name` is what it is called to those who listen."""
    # The salt keeps the ids of two plots in one page apart, and the same from run to run.
    settings: dict[str, Any] = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(settings):  # type: ignore[arg-type]
        figure = Figure(figsize=(6.4, 3.1), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
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


def bare(axes: Any, text: str) -> None:
    """A plot without anything to show says why."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


def over_time(outcome: Outcome) -> str:
    """Pods created and bound so far."""

    def draw(axes: Any) -> None:
        axes.set_title("Pods over time")
        sent = np.sort([t.answered - outcome.start for t in outcome.load.times.values() if t.answered])
        bound = np.asarray(outcome.observation.bound_at) - outcome.start
        if not len(sent) and not len(bound):
            return bare(axes, "no pod was created")
        for label, times, color in (("created", sent, COLORS[1]), ("bound", bound, COLORS[0])):
            if len(times):
                x, y = _thinned(times, np.arange(1, len(times) + 1))
                axes.plot(x, y, label=label, color=color, drawstyle="steps-post")
        axes.set_xlabel("seconds")
        axes.set_ylabel("pods")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right")
        return None

    return svg("pods over time", draw)


def bind_rate(outcome: Outcome) -> str:
    """Binds in each half second, a second."""

    def draw(axes: Any) -> None:
        axes.set_title("Rate of binding")
        bound = np.asarray(outcome.observation.bound_at) - outcome.start
        if not len(bound):
            return bare(axes, "no pod was bound")
        width = max(0.5, float(bound[-1]) / 120)
        edges = np.arange(0, bound[-1] + width, width)
        counts, _ = np.histogram(bound, bins=edges if len(edges) > 1 else [0, width])
        axes.bar(edges[: len(counts)], counts / width, width=width * 0.9, align="edge", color=COLORS[0])
        axes.set_xlabel("seconds")
        axes.set_ylabel("pods bound a second")
        return None

    return svg("rate of binding", draw)


def latency_distribution(outcome: Outcome) -> str:
    """Which share of the pods was bound within which time."""

    def draw(axes: Any) -> None:
        axes.set_title("Create sent to bound: distribution")
        values = np.sort(np.asarray(outcome.observation.created_to_bound)) * 1000
        if not len(values):
            return bare(axes, "no pod was bound")
        x, y = _thinned(np.maximum(values, 0.01), np.arange(1, len(values) + 1) / len(values))
        axes.plot(x, y, color=COLORS[0])
        axes.set_xscale("log")
        axes.set_ylim(0, 1.02)
        low, high = x[0], max(float(x[-1]), float(x[0]) * 1.01)
        axes.set_xlim(low / 1.3, high * 1.6)
        for rank, color in ((50, COLORS[2]), (90, COLORS[1]), (99, COLORS[3])):
            at = float(np.percentile(values, rank))
            axes.axvline(at, color=color, linewidth=1.2, linestyle="--", label=f"p{rank}  {at:,.1f} ms")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("share of pods")
        axes.legend(loc="best")
        return None

    return svg("latency distribution", draw)


def latency_over_time(outcome: Outcome) -> str:
    """Median and 99th percentile of the pods bound in each slice of the run."""

    def draw(axes: Any) -> None:
        axes.set_title("Create sent to bound: over time")
        at = np.asarray(outcome.observation.bound_at) - outcome.start
        # Pods that the load did not make have no latency; then the two differ in length.
        values = np.asarray(outcome.observation.created_to_bound) * 1000
        count = min(len(at), len(values))
        if not count:
            return bare(axes, "no pod was bound")
        at, values = at[:count], values[:count]
        width = max(0.25, float(at[-1]) / 80)
        slices = (at / width).astype(int)
        x, medians, tails = [], [], []
        for number in np.unique(slices):
            inside = values[slices == number]
            x.append((number + 0.5) * width)
            medians.append(np.percentile(inside, 50))
            tails.append(np.percentile(inside, 99))
        axes.plot(x, tails, color=COLORS[3], label="p99", marker=".", markersize=4)
        axes.plot(x, medians, color=COLORS[0], label="p50", marker=".", markersize=4)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("seconds")
        axes.set_ylabel("milliseconds")
        axes.legend()
        return None

    return svg("latency over time", draw)


def queue_depth(outcome: Outcome) -> str:
    """Pods waiting in the scheduler's queues, as it publishes them."""

    def draw(axes: Any) -> None:
        axes.set_title("Queue depth")
        samples = [sample for sample in outcome.samples if sample.queues]
        if not samples:
            return bare(axes, "the scheduler publishes no queue depths")
        names = sorted({name for sample in samples for name in sample.queues})
        x = [sample.at for sample in samples]
        for name, color in zip(names, COLORS, strict=False):
            axes.plot(x, [sample.queues.get(name, 0.0) for sample in samples], label=name, color=color)
        _lower(axes, samples)
        axes.set_ylabel("pods")
        axes.legend()
        return None

    return svg("queue depth", draw)


def processor_time(outcome: Outcome) -> str:
    """CPUs that scheduler and API server kept busy."""

    def draw(axes: Any) -> None:
        axes.set_title("CPU in use")
        samples = [sample for sample in outcome.samples if sample.scheduler and sample.server]
        if len(samples) < 2:
            return bare(axes, "not measured")
        x = np.asarray([sample.at for sample in samples])
        for label, color, which in (
            ("API server", COLORS[1], "server"),
            ("scheduler", COLORS[0], "scheduler"),
        ):
            used = np.asarray([getattr(sample, which).cpu_seconds for sample in samples])
            axes.plot(x[1:], np.diff(used) / np.maximum(np.diff(x), 1e-9), label=label, color=color)
        _lower(axes, samples)
        axes.set_ylabel("CPUs")
        axes.legend()
        return None

    return svg("cpu in use", draw)


def _lower(axes: Any, samples: Sequence[Sample]) -> None:
    axes.set_xlim(0, max(samples[-1].at, 0.1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")


def node_fill(outcome: Outcome) -> str:
    """How full the nodes are at the end: requested of allocatable."""

    def draw(axes: Any) -> None:
        axes.set_title("Node fill at the end")
        bins = np.linspace(0, 100, 21)
        series = [("CPU", outcome.audit.cpu_fill, COLORS[0])]
        if outcome.audit.gpu_fill:
            series.append(("GPU, of nodes that have any", outcome.audit.gpu_fill, COLORS[2]))
        width = 5 * 0.9 / len(series)
        for number, (label, shares, color) in enumerate(series):
            counts, _ = np.histogram(np.minimum(np.asarray(shares) * 100, 100), bins=bins)
            axes.bar(
                bins[:-1] + 0.25 + number * width, counts, width=width, align="edge", color=color, label=label
            )
        axes.set_xlabel("% of allocatable requested")
        axes.set_ylabel("nodes")
        axes.set_xlim(0, 100)
        axes.legend()

    return svg("node fill", draw)


def all_plots(outcome: Outcome) -> list[str]:
    """Every plot, in the order to be read."""
    draws = (
        over_time, latency_distribution, bind_rate, latency_over_time, queue_depth, node_fill, processor_time,
    )  # fmt: skip
    return [draw(outcome) for draw in draws]
