"""The plots of the demo's report. Each draws on the given axes, or returns why there is no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.harness.plots import COLORS, log_axis, svg, thinned

from .outcome import Outcome, Sample

_NOT_CREATED, _NOT_BOUND = "no pod was created", "no pod was bound"


def _labels(axes: Any, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)


def _over_time(outcome: Outcome, axes: Any) -> str | None:
    """Draw the pods created and bound so far."""
    created = np.asarray(outcome.since_start(outcome.track.answered))
    bound = np.asarray(outcome.since_start(outcome.track.bound))
    if not len(created) and not len(bound):
        return _NOT_CREATED
    for label, times, color in (("created", created, COLORS[1]), ("bound", bound, COLORS[0])):
        if len(times):
            x, y = thinned(times, np.arange(1, len(times) + 1))
            axes.plot(x, y, label=label, color=color, drawstyle="steps-post")
    _labels(axes, "seconds", "pods")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    return None


def _rate(outcome: Outcome, axes: Any) -> str | None:
    """Draw the binds per second, by slices of the run that end with the last bind."""
    bound = np.asarray(outcome.since_start(outcome.track.bound))
    if not len(bound):
        return _NOT_BOUND
    counts, edges = np.histogram(bound, bins=_slices(bound), range=(0, max(bound[-1], 1e-9)))
    width = edges[1]
    axes.bar(edges[:-1], counts / width, width=width * 0.9, align="edge", color=COLORS[0])
    axes.set_xlim(left=0)
    _labels(axes, "seconds", "pods bound per second")
    return None


def _slices(times: np.ndarray) -> int:
    """Return into how many slices a run is cut: of half a second, but not less than 20 and not more than 120."""
    return int(np.clip(times.max() / 0.5, 20, 120))


def _latencies(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each bound pod, when it was bound, and the milliseconds since its create was sent."""
    sent, bound = np.asarray(outcome.track.sent), np.asarray(outcome.track.bound)
    seen = (sent > 0) & (bound > 0)
    return bound[seen] - outcome.start, np.maximum(bound[seen] - sent[seen], 0) * 1000


def _distribution(outcome: Outcome, axes: Any) -> str | None:
    """Draw the share of the pods that was bound within each time."""
    values = np.sort(_latencies(outcome)[1])
    if not len(values):
        return _NOT_BOUND
    x, y = thinned(np.maximum(values, 0.01), np.arange(1, len(values) + 1) / len(values))
    axes.plot(x, y, color=COLORS[0])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    low, high = x[0], max(float(x[-1]), float(x[0]) * 1.01)
    axes.set_xlim(low / 1.3, high * 1.6)
    for rank, color in ((50, COLORS[2]), (90, COLORS[1]), (99, COLORS[3])):
        at = float(np.percentile(values, rank))
        axes.axvline(at, color=color, linewidth=1.2, linestyle="--", label=f"p{rank}  {at:,.1f} ms")
    log_axis(axes.xaxis)
    _labels(axes, "milliseconds", "share of pods")
    axes.legend(loc="best")
    return None


def _latency_over_time(outcome: Outcome, axes: Any) -> str | None:
    """Draw median and 99th percentile of the pods bound in each slice of the run."""
    at, values = _latencies(outcome)
    if not len(at):
        return _NOT_BOUND
    count = _slices(at)
    width = max(float(at.max()), 1e-9) / count
    slices = np.minimum(at / width, count - 1).astype(int)
    numbers = np.unique(slices)
    for rank, color in ((99, COLORS[3]), (50, COLORS[0])):
        each = [np.percentile(values[slices == number], rank) for number in numbers]
        axes.plot((numbers + 0.5) * width, each, color=color, label=f"p{rank}", marker=".", markersize=4)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _labels(axes, "seconds", "milliseconds")
    axes.legend()
    return None


def _queues(outcome: Outcome, axes: Any) -> str | None:
    """Draw the pods waiting in the scheduler's queues, from its metrics."""
    samples = [sample for sample in outcome.samples if sample.queues]
    if not samples:
        return "the scheduler publishes no queue depths"
    # At least one line, as empty queues hide one another.
    names = sorted({name for sample in samples for name, depth in sample.queues.items() if depth}) or ["active"]
    x = [sample.at for sample in samples]
    for name, color in zip(names, COLORS, strict=False):
        axes.plot(x, [sample.queues.get(name, 0.0) for sample in samples], label=name, color=color)
    _sampled(axes, samples, "pods")
    return None


def _cpu(outcome: Outcome, axes: Any) -> str | None:
    """Draw the CPUs that scheduler and API server used."""
    samples = [sample for sample in outcome.samples if sample.scheduler and sample.server]
    if len(samples) < 2:
        return "not measured"
    x = np.asarray([sample.at for sample in samples])
    for label, color, which in (("API server", COLORS[1], "server"), ("scheduler", COLORS[0], "scheduler")):
        used = np.asarray([getattr(sample, which).cpu_seconds for sample in samples])
        axes.plot(x[1:], np.diff(used) / np.maximum(np.diff(x), 1e-9), label=label, color=color)
    _sampled(axes, samples, "CPUs")
    return None


def _memory(outcome: Outcome, axes: Any) -> str | None:
    """Draw the resident memory of scheduler and API server."""
    samples = [sample for sample in outcome.samples if sample.scheduler and sample.server]
    if len(samples) < 2:
        return "not measured"
    for label, color, which in (("API server", COLORS[1], "server"), ("scheduler", COLORS[0], "scheduler")):
        used = [getattr(sample, which).rss / (1 << 20) for sample in samples]
        axes.plot([sample.at for sample in samples], used, label=label, color=color)
    _sampled(axes, samples, "MiB")
    return None


def _sampled(axes: Any, samples: Sequence[Sample], up: str) -> None:
    axes.set_xlim(0, max(samples[-1].at, 0.1))
    axes.set_ylim(bottom=0)
    _labels(axes, "seconds", up)
    axes.legend()


def _fill(outcome: Outcome, axes: Any) -> str | None:
    """Draw how full the nodes are at the end: requested of allocatable."""
    bins = np.linspace(0, 100, 21)
    series = [("CPU", outcome.audit.cpu_fill, COLORS[0])]
    if outcome.audit.gpu_fill:
        series.append(("GPU, of nodes that have any", outcome.audit.gpu_fill, COLORS[2]))
    width = 5 * 0.9 / len(series)
    for number, (label, shares, color) in enumerate(series):
        counts, _ = np.histogram(np.minimum(np.asarray(shares) * 100, 100), bins=bins)
        where = bins[:-1] + 0.25 + number * width
        axes.bar(where, counts, width=width, align="edge", color=color, label=label)
    _labels(axes, "% of allocatable requested", "nodes")
    axes.set_xlim(0, 100)
    axes.legend()
    return None


#: The plots in the order of the report: name, title, and the function that draws.
_PLOTS: tuple[tuple[str, str, Callable[[Outcome, Any], str | None]], ...] = (
    ("pods over time", "Pods over time", _over_time),
    ("latency distribution", "Create sent to bound: distribution", _distribution),
    ("rate of binds", "Rate of binds", _rate),
    ("latency over time", "Create sent to bound: over time", _latency_over_time),
    ("queue depth", "Queue depth", _queues),
    ("node fill", "Node fill at the end", _fill),
    ("cpu in use", "CPU in use", _cpu),
    ("memory in use", "Memory in use", _memory),
)


def all_plots(outcome: Outcome) -> list[str]:
    """Return every plot as an SVG element."""
    return [svg(name, partial(_titled, title, draw, outcome)) for name, title, draw in _PLOTS]


def _titled(title: str, draw: Callable[[Outcome, Any], str | None], outcome: Outcome, axes: Any) -> str | None:
    axes.set_title(title)
    return draw(outcome, axes)
