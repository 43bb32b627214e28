"""What is said of a run: verdict, table, JSON, live view and report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_scheduler.demo.audit import Audit
from agent_scheduler.demo.load import LoadResult, PodTimes
from agent_scheduler.demo.machine import machine
from agent_scheduler.demo.measure import Sample, Usage
from agent_scheduler.demo.observe import Observation
from agent_scheduler.demo.outcome import Outcome
from agent_scheduler.demo.plots import all_plots
from agent_scheduler.demo.report import render, write_report
from agent_scheduler.demo.specs import GPU_MILLI, PodSpec, Workload
from agent_scheduler.demo.view import Frame, LineView, fill_bins, final_table, line, screen, sparkline


def outcome(**changes: Any) -> Outcome:
    """A run of ten pods at ten a second, each bound 20 ms after it was sent."""
    load, seen = LoadResult(created=10), Observation(bound=10)
    for number in range(10):
        sent = 100.0 + number / 10
        load.times[f"p{number}"] = PodTimes(f"p{number}", sent, sent, sent + 0.01, sent + 0.02)
        seen.bound_at.append(sent + 0.02)
        seen.created_to_bound.append(0.02)
        seen.answered_to_bound.append(0.01)
    audit = Audit(
        nodes=2, pods=10, bound=10, cpu_fill=[0.1, 0.9], requested={"cpu": 5}, allocatable={"cpu": 10}
    )
    samples = [
        Sample(at=at / 4, created=at, bound=at, running=1, ended=0, queues={"active": at, "backoff": 0.0},
               conflicts=float(at), scheduler=Usage(at / 10, 1 << 20), server=Usage(at / 5, 2 << 20))
        for at in range(5)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "workload": Workload(name="w <&>", pods=tuple(PodSpec(name=f"p{n}", requests={}) for n in range(10))),
        "nodes": 2,
        "workers": 4,
        "start": 100.0,
        "load": load,
        "observation": seen,
        "samples": samples,
        "audit": audit,
        "hopeless": {},
        "interruption": "",
        "scheduler_before": Usage(1.0, 0),
        "scheduler_after": Usage(1.1, 64 << 20),
        "server_before": Usage(0.0, 0),
        "server_after": Usage(0.5, 96 << 20),
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
    assert run.scheduler_milliseconds_a_pod() == pytest.approx(10.0)
    values = run.as_json()
    assert values["ok"] is True
    assert values["createToBindMs"] == {"p50": 20.0, "p90": 20.0, "p99": 20.0}
    assert values["conflicts"] == 4.0
    assert values["urgentRetries"] is None
    assert values["allocation"] == {"cpu": 0.5}
    assert "OK  every pod that fits is bound" in text_of(final_table(run))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"audit": Audit(overcommitted=["n: cpu requested 5, allocatable 4"])},
            "overcommit: n: cpu requested 5",
        ),
        ({"audit": Audit(left_out=["p is not bound, but fits n"])}, "left out: p is not bound, but fits n"),
        ({"observation": Observation(rebound=["p: a -> b"])}, "bound twice: p: a -> b"),
        ({"interruption": "the scheduler ended"}, "the scheduler ended"),
    ],
)
def test_whatever_is_wrong_makes_the_run_a_failure_and_is_said(changes: dict[str, Any], said: str) -> None:
    run = outcome(**changes)
    assert not run.ok
    assert said in run.failures()[0]
    assert said in text_of(final_table(run))


def test_refused_kubelets_and_failed_creates_are_failures() -> None:
    seen = Observation()
    seen.kubelet_refusals["OutOfcpu"] += 2
    assert outcome(observation=seen).failures() == ["overcommit: kubelets refused 2 pods: OutOfcpu"]
    load = LoadResult()
    load.errors["422 Invalid"] += 3
    assert outcome(load=load).failures() == ["3 creates failed: 422 Invalid"]


def test_refused_pods_are_no_failure_and_are_listed_by_reason() -> None:
    audit = Audit()
    audit.refused["0/2 nodes are available: <2> Insufficient cpu."] = 3
    run = outcome(audit=audit, hopeless={"no empty node has enough of cpu": 1})
    assert run.ok
    assert "Insufficient cpu" in text_of(final_table(run))
    page = render(replace(run, interruption="<stopped>"))
    assert "<strong>Failed</strong><p>&lt;stopped&gt;</p>" in page
    assert "&lt;2&gt; Insufficient cpu" in page
    assert "no empty node has enough of cpu" in page


def test_gpus_are_reported_where_there_are_any() -> None:
    audit = Audit(gpu_fill=[0.5], split_cards=3, requested={GPU_MILLI: 1500}, allocatable={GPU_MILLI: 2000})
    rows = dict(outcome(audit=audit).rows())
    assert rows["GPU requested of allocatable"] == "75.00%"
    assert rows["nodes whose GPU shares need a split card"] == "3"


def test_the_report_needs_nothing_outside_itself(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "report.html"
    write_report(outcome(machine=machine()), file)
    page = file.read_text()
    assert "w &lt;&amp;&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "@import" not in page
    assert page.count("<svg") == 7


@pytest.mark.parametrize("samples", [True, False])
def test_every_plot_is_whole_and_follows_the_pages_colours(samples: bool) -> None:
    empty = {"load": LoadResult(), "observation": Observation(), "samples": [], "audit": Audit()}
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
        title="t", total=10, sample=sample, bound_rate=4.0, created_rate=6.0, latencies=(0.002, 0.01, 1.5),
        fill=[0.05, 0.95], history=[1.0, 2.0], errors=0,
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
    with LineView(lines.append) as view:
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
