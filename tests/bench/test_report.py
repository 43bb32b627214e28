"""The report shows what counts, says what was refused, and draws nothing that was not measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from bench.harness.result import Figures, Latency, Run
from bench.parts import Part
from bench.plots import Point, points
from bench.report import report, write_report
from bench.scenarios.catalogue import SCENARIOS
from bench.scenarios.tables import text_of

SCENARIO = next(scenario for scenario in SCENARIOS if scenario.name == "nodes")


def run(number: int, rate: float | None = 100.0, *, case: str = "100 nodes", at: float = 100.0, **more: object) -> Run:
    figures = Figures(pods=10, pods_per_second=rate, cpu_ms=0.5, latency=Latency(1.0, 2.0, 3.0, 4.0))
    return Run(scenario="nodes", case=case, number=number, at=at, figures=figures, **more)  # type: ignore[arg-type]


def part(name: str, runs: list[Run], **more: object) -> Part:
    return Part(name=name, command=["python", "-m", "bench.scenarios", name], runs=runs, **more)  # type: ignore[arg-type]


def test_a_case_is_a_line_of_medians_with_their_range() -> None:
    text = text_of(SCENARIO, [run(1, 100.0), run(2, 300.0), run(3, 200.0)])
    line = next(line for line in text.splitlines() if line.startswith("| 100 nodes"))
    assert line.startswith("| 100 nodes | 3 | 10 | 200 (100 to 300) |")
    # What no run measured has no column.
    assert "of bare binds" not in text
    assert "cluster's CPU" not in text


def test_a_case_of_which_one_run_was_refused_has_no_figures() -> None:
    refused = Run(scenario="nodes", case="100 nodes", number=2, refused=["b: 1 of 10 pods were never bound"])
    other = run(1, 50.0, case="1,000 nodes", at=1000.0)
    text = text_of(SCENARIO, [run(1), refused, other])
    line = next(line for line in text.splitlines() if line.startswith("| 100 nodes"))
    assert set(line.split(" | ")[2:]) <= {"refused", "refused |"}
    assert "- **Refused**: 100 nodes, run 2: b: 1 of 10 pods were never bound" in text
    assert "| 1,000 nodes | 1 | 10 | 50 |" in text


def test_the_report_says_how_and_when_each_part_was_run() -> None:
    parts = {
        "nodes": part(
            "nodes",
            [run(1)],
            seconds=12.0,
            date="2030-01-01T00:00:00Z",
            commit="abc",
            load=0.25,
            million_additions_ms=41.4,
            machine={"Python": "3"},
        ),
        "queue": Part(name="queue", command=["python", "-m", "bench.queue_moves"], text="| a |", seconds=1.4),
    }
    text = report(parts, plots=["workers.svg"])
    assert "- Python: 3" in text
    assert "![workers](workers.svg)" in text
    when = "2030-01-01T00:00:00Z, commit abc, load before 0.25, a million additions 41 ms"
    assert f"`python -m bench.scenarios nodes` (12 s; {when})" in text
    assert "`python -m bench.queue_moves` (1 s; " in text
    assert text.index("## Scale") < text.index("### nodes") < text.index("## Single parts") < text.index("| a |")
    assert "smaller than intended" not in text


def test_a_report_has_each_scenario() -> None:
    text = report({each.name: part(each.name, [run(1)]) for each in SCENARIOS}, plots=[])
    assert [each.name for each in SCENARIOS if f"### {each.name}\n" not in text] == []


def test_a_part_from_another_machine_says_so() -> None:
    parts = {
        name: part(name, [run(1)], date=f"2030-01-{day}T00:00:00Z", machine={"Python": python, "uvloop": "1"})
        for name, day, python in (("nodes", "02", "3.12"), ("rates", "01", "3.11"))
    }
    text = report(parts, plots=[])
    assert "- Python: 3.12" in text
    assert "On another machine: Python: 3.11." in text
    assert text.count("On another machine") == 1


def test_a_report_of_small_runs_says_that_it_says_nothing() -> None:
    text = report({"nodes": part("nodes", [run(1, case="100 nodes (x 0.02)")])}, plots=[])
    assert "smaller than intended" in text


def test_what_failed_is_in_the_report_with_its_last_words() -> None:
    parts = {
        "queue": Part(name="queue", command=["python"], code=1, text="it broke"),
        "nodes": part("nodes", [], code=3, text="no cluster"),
    }
    text = report(parts, plots=[])
    assert "**Failed** with exit code 1:\n\n```text\nit broke\n```" in text
    assert "**Failed** with exit code 3:\n\n```text\nno cluster\n```" in text


def test_points_are_medians_of_runs_that_count() -> None:
    refused = run(3, 9000.0)
    refused.refused = ["why"]
    runs = [run(1, 100.0, at=5.0), run(2, 300.0, at=5.0), refused, run(1, 50.0, at=1.0), run(1, None, at=9.0)]
    assert points(runs, lambda figures: figures.pods_per_second) == [
        Point(1.0, 50.0, 50.0, 50.0),
        Point(5.0, 200.0, 100.0, 300.0),
    ]


def test_plots_are_files_of_their_own_for_light_and_dark_pages(tmp_path: Path) -> None:
    runs = [run(1), run(1, 50.0, case="1,000 nodes", at=1000.0)]
    page = write_report(tmp_path, {"nodes": part("nodes", runs), "waiting": part("waiting", [run(1, at=0.0)])})
    drawn = sorted(file.name for file in tmp_path.glob("*.svg"))
    assert drawn == ["cpu-by-nodes.svg", "cpu-by-waiting.svg", "throughput-by-nodes.svg"]
    for name in drawn:
        text = (tmp_path / name).read_text()
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme:dark" in text
        assert f"]({name})" in page.read_text()
