"""The output of a run: verdict, table, JSON, live view and report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.demo import report
from bench.demo.outcome import Outcome, Sample, rate
from bench.demo.plots import all_plots
from bench.demo.report import render, write_report
from bench.demo.summary import summary
from bench.demo.view import Frame, LineView, fill_bins, final_table, line, screen, sparkline
from bench.harness.audit import Audit
from bench.harness.measure import Usage, machine
from bench.harness.model import Batch, Gang
from bench.harness.result import Figures, Latency
from bench.harness.specs import GPU_MILLI, NodeSpec, PodSpec, Workload
from bench.harness.watching import FreeCapacity, Observer, Track


def outcome(**changes: Any) -> Outcome:
    """Return a run of ten pods at ten a second, each bound 20 ms after it was sent."""
    track = Track(Batch(name="p", count=10))
    track.created = track.bound_count = 10
    for number in range(10):
        sent = track.due[number] = track.sent[number] = 100.0 + number / 10
        track.answered[number], track.bound[number] = sent + 0.01, sent + 0.02
    audit = Audit(nodes=2, pods=10, bound=10, cpu_fill=[0.1, 0.9], requested={"cpu": 5}, allocatable={"cpu": 10})
    samples = [
        Sample(at=at / 4, created=at, bound=at, running=1, ended=0, queues={"active": at, "backoff": 0.0},
               conflicts=float(at), scheduler=Usage(at / 10, 1 << 20), server=Usage(at / 5, 2 << 20))
        for at in range(5)
    ]  # fmt: skip
    nodes = tuple(NodeSpec(name=name, cpu_milli=1, memory=1) for name in "ab")
    pods = tuple(PodSpec(name=f"p{n}", requests={}) for n in range(10))
    values: dict[str, Any] = {
        "workload": Workload(name="w <&>", pods=pods, nodes=nodes),
        "workers": 4,
        "start": 100.0,
        "track": track,
        "observer": Observer(None, "default", [], FreeCapacity({})),  # type: ignore[arg-type]
        "latest": 0.0,
        "samples": samples,
        "audit": audit,
        "figures": Figures(cpu_ms=10.0, server_cpu_ms=50.0),
        "failures": [],
        "hopeless": {},
        "machine": {"Python": "3"},
    }
    return Outcome(**(values | changes))


def text_of(*parts: Any) -> str:
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    for part in parts:
        console.print(part)
    console.file.close()
    return console.export_text()


def test_a_run_with_nothing_wrong_is_ok() -> None:
    run = outcome()
    assert run.ok
    assert run.bind_seconds == pytest.approx(0.92)
    assert run.pods_a_second == pytest.approx(10 / 0.92)
    values = run.as_json()
    assert values["ok"] is True
    assert values["createToBindMs"] == {"p50": 20.0, "p90": 20.0, "p99": 20.0}
    assert (values["schedulerCpuMsPerPod"], values["serverCpuMsPerPod"]) == (10.0, 50.0)
    assert values["schedulerRssBytes"] == 1 << 20
    assert values["conflicts"] == 4.0
    assert values["urgentRetries"] is None
    assert values["allocation"] == {"cpu": 0.5}
    assert "OK  every pod that fits is bound" in text_of(final_table(run))


def test_the_last_screen_says_what_was_asked_and_what_to_try_next() -> None:
    track = Track(Batch(name="training", count=9, gang=Gang(size=3)))
    text = " ".join(text_of(summary(outcome(gangs=[track]), Path("out/r.html"))).replace("│", " ").split())
    assert "w <&>: 10 pods within 0.9 s, on 2 nodes; 3 gangs of 3 pods in queue training" in text
    placed = "10 pods are bound, half of them within 20.0 ms, 99 % within 20.0 ms."
    assert f"{placed} The scheduler used 10.00 ms" in text
    assert "none is over its allocatable" in text
    # The text states that the others' numbers are recorded.
    assert "recorded with a real API server on two cores, not measured now" in text
    assert "open out/r.html" in text
    assert len(text_of(summary(outcome(), None)).splitlines()) <= 24


def test_the_last_screen_of_a_run_that_failed_hides_nothing() -> None:
    audit = Audit(cpu_fill=[1.2], overcommitted=["n"])
    audit.refused["0/1 nodes are available"] = 3
    text = " ".join(text_of(summary(outcome(audit=audit, figures=None), None)).replace("│", " ").split())
    assert "3 fit on no node and report it" in text
    assert "1 ARE OVER their allocatable" in text
    assert "The scheduler used" not in text


def test_gangs_count_once_all_their_pods_are_bound() -> None:
    track = Track(Batch(name="training", count=9, gang=Gang(size=3)))
    for number in (0, 1, 2, 3, 5, 6, 7, 8):
        track.bound[number] = 1.0
    run = outcome(gangs=[track])
    assert run.as_json()["gangs"] == {"training": 2}
    assert ("gangs bound completely, queue training", "2 of 3, each of 3 pods") in run.rows()


def test_whatever_is_wrong_makes_the_run_a_failure_and_is_said() -> None:
    run = outcome(failures=["left out: p is not bound, but fits n"], figures=None)
    assert not run.ok
    assert "FAILED  left out: p is not bound, but fits n" in text_of(final_table(run))
    assert run.as_json()["failures"] == ["left out: p is not bound, but fits n"]
    assert dict(run.rows())["scheduler CPU per pod"] == "not measured"


def test_refused_pods_are_no_failure_and_are_listed_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "all_plots", lambda _outcome: [])
    audit = Audit()
    audit.refused["0/2 nodes are available: <2> Insufficient cpu."] = 3
    run = outcome(audit=audit, hopeless={"no empty node has enough of cpu": 1})
    assert run.ok
    assert "Insufficient cpu" in text_of(final_table(run))
    page = render(replace(run, failures=["<stopped>"]))
    assert "<strong>Failed</strong><p>&lt;stopped&gt;</p>" in page
    assert "&lt;2&gt; Insufficient cpu" in page
    assert "no empty node has enough of cpu" in page


def test_gpus_are_reported_where_there_are_any() -> None:
    audit = Audit(gpu_fill=[0.5], requested={GPU_MILLI: 1500}, allocatable={GPU_MILLI: 2000})
    rows = dict(outcome(audit=audit).rows())
    assert rows["GPU requested of allocatable"] == "75.00%"


@pytest.mark.wide
def test_the_report_needs_nothing_outside_itself(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "report.html"
    write_report(outcome(machine=machine()), file)
    page = file.read_text()
    assert "w &lt;&amp;&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "@import" not in page
    assert page.count("<svg") == 8


@pytest.mark.wide
@pytest.mark.parametrize("samples", [True, False])
def test_every_plot_is_whole_and_follows_the_pages_colours(samples: bool) -> None:
    empty = {"track": Track(Batch(name="p", count=1)), "samples": [], "audit": Audit()}
    plots = all_plots(outcome(**({} if samples else empty)))
    ids: list[str] = []
    for plot in plots:
        root = ET.fromstring(plot)
        assert root.tag.endswith("svg")
        assert "currentColor" in plot
        ids += [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    if samples:
        assert plots == all_plots(outcome())


def frame(at: float = 1.0) -> Frame:
    sample = Sample(at=at, created=7, bound=5, running=3, ended=2, queues={"active": 2.0}, conflicts=1.0)
    return Frame(
        title="t", total=10, sample=sample, bound_rate=4.0, created_rate=6.0, latency=Latency(2.0, 10.0, 1500.0),
        fill=[0.05, 0.95], history=[1.0, 2.0],
    )  # fmt: skip


def test_a_frame_shows_rates_queues_latencies_and_conflicts() -> None:
    shown = line(frame())
    for part in ("created 7", "bound 5/10", "4/s", "p50 2.0 ms", "p99 1.50 s", "active 2", "conflicts 1"):
        assert part in shown
    shown = text_of(screen(frame()))
    for part in ("5 of 10 bound", "10.0 ms", "active", "conflicts", "95%"):
        assert part in shown


def test_what_is_not_a_terminal_gets_a_line_a_second() -> None:
    lines: list[str] = []
    view = LineView(lines.append)
    with view:
        view.say("hello")
        for at in (0.0, 0.25, 0.5, 1.0, 1.25, 2.5):
            view.show(frame(at))
    assert lines[0] == "hello"
    assert [text.split()[0] for text in lines[1:]] == ["0.0", "1.0", "2.5"]


def test_bars_are_scaled_and_bins_hold_every_node() -> None:
    assert sparkline([0, 1, 2]) == " ▅█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
    assert fill_bins([0.0, 0.05, 0.5, 1.0, 1.7], bins=2) == [2, 3]


def test_the_rate_is_of_the_last_seconds_only() -> None:
    def sample(at: float, bound: int) -> Sample:
        return Sample(at=at, created=0, bound=bound, running=0, ended=0)

    assert rate([]) == 0.0
    assert rate([sample(0, 5)]) == 0.0
    assert rate([sample(0, 0), sample(1, 100), sample(2, 100), sample(3, 300)], seconds=2) == 100.0
    assert rate([sample(0, 0), sample(5, 50)], seconds=2) == 10.0
