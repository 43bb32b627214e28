"""The demo's arguments, and the case that they make."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.demo.command import add_arguments, main
from bench.demo.scenario import case_of, workload_of
from bench.harness.specs import Workload
from tests.bench.harness.test_traces import files


def arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


def workload(*flags: str) -> Workload:
    return workload_of(arguments(*flags))


@pytest.fixture
def openb(tmp_path: Path) -> str:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
    nodes = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,0,\nb,8000,1024,1,T4\n"
    return files(tmp_path, nodes, f"{head}x,1,1,0,0,,100,300\ny,1,1,1,500,,50,90\n")


def test_a_burst_is_as_it_is_asked_for_or_meets_five_hundred_nodes() -> None:
    made = workload()
    assert (len(made.pods), len(made.nodes)) == (5000, 500)
    assert made.pods[-1].arrival == 0
    made = workload("--pods", "20", "--nodes", "3", "--seed", "9", "--waves", "2")
    assert made.pods[-1].arrival > 1
    assert (len(made.pods), len(made.nodes), made.name) == (20, 3, "agent burst, seed 9")


def test_a_rate_spaces_the_pods_evenly() -> None:
    assert [pod.arrival for pod in workload("--pods", "3", "--rate", "4").pods] == [0.0, 0.25, 0.5]


def test_openb_comes_at_once_onto_its_own_nodes_and_stays(openb: str) -> None:
    made = workload("--trace", openb)
    assert [node.name for node in made.nodes] == ["a", "b"]
    assert [(pod.name, pod.arrival, pod.life) for pod in made.pods] == [("y", 0.0, None), ("x", 0.0, None)]


def test_openb_sped_up_keeps_its_arrivals_and_lives_and_may_be_cut_short(openb: str) -> None:
    made = workload("--trace", openb, "--speedup", "10")
    assert [(pod.arrival, pod.life) for pod in made.pods] == [(0.0, 4.0), (5.0, 20.0)]
    made = workload("--trace", openb, "--pods", "1", "--nodes", "1")
    assert (len(made.pods), len(made.nodes)) == (1, 1)


def test_a_long_trace_of_arrivals_is_compressed_to_a_minute_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("app,func,end_timestamp,duration\na,f,10,10\na,f,610,10\n")
    made = workload("--trace", f"azure-functions:{file}")
    assert [(pod.arrival, pod.life) for pod in made.pods] == [(0.0, 1.0), (60.0, 1.0)]
    assert "10 times as fast" in made.notes[-1]


@pytest.mark.parametrize("flags", ["--pods 0", "--rate -1", "--speedup inf", "--rate 1 --speedup 2", "--nodes x"])
def test_arguments_that_make_no_sense_are_refused(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        arguments(*flags.split())
    assert refused.value.code == 2
    assert "error: argument" in capsys.readouterr().err


def test_a_bad_trace_ends_the_command_before_anything_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--trace", "azure-llm:/nowhere.csv")) == 2
    assert "agent-scheduler demo: /nowhere.csv: cannot be read" in capsys.readouterr().err


def test_a_workload_is_a_case_of_the_benchmarks(openb: str) -> None:
    case = case_of(workload("--trace", openb, "--speedup", "10"), workers=3, patience=5.0)
    assert (case.tuning.workers, case.patience, case.nodes.count) == (3, 5.0, 2)
    assert case.load.schedule is not None
    assert case.load.schedule.due(2) == [0.0, 5.0]
    assert [template.annotations["agent-scheduler.io/run-seconds"] for template in case.load.templates] == [
        "4.000", "20.000",
    ]  # fmt: skip


def test_a_story_is_told_in_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for line, told in (
        ("--story gates --pods 5 --nodes 7", "--nodes, --pods: not allowed with --story"),
        ("--story jobs --json", "--json: not allowed with --story"),
        ("--trace openb:n,p --waves 2 --gangs 0", "--waves, --gangs: not allowed with --trace"),
        ("--report r --no-report", "--report: not allowed with --no-report"),
    ):
        assert main(arguments(*line.split())) == 2
        assert capsys.readouterr().err.startswith(f"agent-scheduler demo: {told}")
