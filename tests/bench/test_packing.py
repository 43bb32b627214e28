"""The packing benchmark on traces of a few nodes: what it draws, what its runs say, and how it answers mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scheduler.cli.main import main
from agent_scheduler.engine.recount import contradictions
from apimachinery.quantity import resource_value
from bench.harness.specs import GPU_MILLI, NodeSpec, PodSpec, Workload
from bench.packing.decisions import Decisions, Pods
from bench.packing.demand import drawn, fill
from bench.packing.gangs import fit_gangs
from bench.packing.lives import live
from bench.packing.pages import table_of
from bench.packing.policies import POLICIES, Policy, target_workload

from .harness.test_traces import files

GIB = 1 << 30
NODES = tuple(
    NodeSpec(
        name=f"n{index}",
        cpu_milli=16_000 * gpus,
        memory=64 * gpus * GIB,
        gpus=gpus,
        extended={GPU_MILLI: 1000 * gpus},
        labels={"model": model},
    )
    for index, (gpus, model) in enumerate([(2, "T4"), (4, "T4"), (4, "G2"), (8, "G2")])
)
KINDS = (
    ({"cpu": 4000, "memory": 8 * GIB, GPU_MILLI: 1000}, {}),
    ({"cpu": 2000, "memory": 4 * GIB, GPU_MILLI: 470}, {}),
    ({"cpu": 1000, "memory": 4 * GIB, GPU_MILLI: 300}, {"model": ("T4",)}),
    ({"cpu": 8000, "memory": 32 * GIB, GPU_MILLI: 2000}, {}),
    ({"cpu": 2000, "memory": 2 * GIB}, {}),
)
TRACE = Workload(
    name="small",
    nodes=(NodeSpec(name="plain", cpu_milli=8000, memory=GIB), *NODES),
    pods=tuple(
        PodSpec(name=f"p{index}", requests=requests, affinity=affinity, arrival=10.0 * index, life=200.0)
        for index, (requests, affinity) in enumerate(KINDS * 8)
    ),
)
GIVEN, LEARNT = POLICIES[-2], POLICIES[-1]


def test_all_pods_come_first_and_are_drawn_again_until_they_ask_for_as_much_as_is_wanted() -> None:
    found = drawn(TRACE.pods, NODES, seed=1, demand=2.5)
    asked = sum(pod.requests.get(GPU_MILLI, 0) for pod in found)
    assert 2.5 * 18_000 <= asked < 2.5 * 18_000 + 2000
    assert {pod.name for pod in found[: len(TRACE.pods)]} == {pod.name for pod in TRACE.pods}
    # These ask for more than there is.
    some = drawn(TRACE.pods, NODES, seed=1, demand=1.3)
    assert some == found[: len(some)] and len(some) < len(TRACE.pods)
    again, other = (drawn(TRACE.pods, NODES, seed=seed, demand=1.3) for seed in (1, 2))
    assert some == again != other
    with pytest.raises(ValueError, match="no pod asks for a GPU"):
        drawn([pod for pod in TRACE.pods if GPU_MILLI not in pod.requests], NODES, seed=1)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_what_a_run_says_is_what_its_pods_have(policy: Policy) -> None:
    found = fill(TRACE, policy, seed=1)
    assert (found.trace, found.policy, found.seed) == ("small", policy.name, 1)
    waiting = drawn(TRACE.pods, NODES, seed=1)
    assert found.pods == len(waiting)
    decisions, pods = Decisions(NODES, policy, TRACE.pods, seed=1), Pods()
    given = 0
    for number, spec in enumerate(waiting):
        pod = pods.pod(spec, f"pod-{number:06d}")
        decisions.seen(pod)
        given += spec.requests.get(GPU_MILLI, 0) * decisions.place(pod)
    assert found.allocated == given / 18_000 == decisions.allocated(GPU_MILLI)
    assert contradictions(decisions.ledger) == []
    assert all(left >= 0 for free in decisions.ledger.columns.gpus.values() for left in free)
    asked, allocated, unusable = found.curve[-1]
    assert asked >= 1.3 and allocated == found.allocated and 0 <= unusable <= 1 - allocated + 1e-9


def test_the_target_workload_is_all_kinds_with_their_numbers() -> None:
    found = target_workload(TRACE.pods)
    assert [each["weight"] for each in found] == [8] * len(KINDS)
    shares = [resource_value(GPU_MILLI, each["requests"].get(GPU_MILLI, "0")) for each in found]
    assert shares == [1000, 470, 300, 2000, 0]
    (choosy,) = [each for each in found if "nodeAffinity" in each]
    assert choosy["requests"][GPU_MILLI] == "300"
    assert found[-1] == {"requests": {"cpu": "2", "memory": "2048Mi"}, "weight": 8}


def test_pods_that_find_no_room_wait_and_are_placed_as_others_end() -> None:
    # The trace over itself once asks for half of them on average.
    roomy = live(TRACE, GIVEN, seed=1, gpus=18, load=0.1)
    assert roomy.pods == len(TRACE.pods) and roomy.unplaced == 0
    tight = live(TRACE, GIVEN, seed=1, gpus=18, load=1.5)
    assert tight.gpus == 18 and tight.pods > roomy.pods
    assert tight.waited > roomy.waited and tight.mean_wait > roomy.mean_wait
    assert roomy.allocated < tight.allocated <= 1


@pytest.mark.wide
@pytest.mark.parametrize("policy", (GIVEN, LEARNT), ids=lambda policy: policy.name)
def test_gangs_fit_beside_agents_that_go_where_no_member_could(policy: Policy) -> None:
    spread = fit_gangs(POLICIES[1], seed=1, nodes=10)
    found = fit_gangs(policy, seed=1, nodes=10)
    assert found.without == spread.without and found.agents > 100
    assert spread.gangs < found.gangs < found.without


def test_a_table_has_a_line_for_each_trace_and_policy_with_mean_and_deviation() -> None:
    runs = [fill(TRACE, policy, seed) for policy in POLICIES[4:6] for seed in (1, 2)]
    head, *lines = table_of(runs).splitlines()
    assert head.split()[:3] == ["TRACE", "POLICY", "RUNS"]
    assert [line.split()[:3] for line in lines] == [["small", "GPUPacking", "2"], ["small", "BestFit", "2"]]
    mean = sum(100 * run.allocated for run in runs[2:]) / 2
    assert f"{mean:.2f} +-" in lines[1]


def written(folder: Path) -> str:
    nodes = "sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,2,T4\nb,32000,65536,4,G2\n"
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"
    rows = (f"p{each},2000,1024,1,{(300, 470, 1000)[each % 3]},,{each},{each + 9}" for each in range(6))
    return files(folder, nodes, "\n".join((head, *rows, "")))


def test_the_command_prints_a_table_and_writes_figures_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ("--policy", "BestFit", "--policy", "Random", "--seeds", "1-2", "--jobs", "1", "--out", str(out))
    assert main(["bench", "packing", "--trace", written(tmp_path), *flags]) == 0
    assert "BestFit" in capsys.readouterr().out
    runs = json.loads((out / "packing.json").read_text())
    assert [(run["policy"], run["seed"]) for run in runs] == [
        ("BestFit", 1), ("BestFit", 2), ("Random", 1), ("Random", 2),
    ]  # fmt: skip
    assert (out / "packing-pods-allocated.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "expected --trace with one of openb:"),
        (["--trace", "openb:nowhere,nowhere"], "nowhere: cannot be read"),
        (["--gangs", "--trace", "TRACE"], "leave --trace out"),
        (["--trace", "TRACE", "--copies", "0"], "--copies 0: expected at least 1"),
        (["--trace", "TIMELESS", "--lives", "--seeds", "1", "--jobs", "1"], "expected a trace with such pods and with"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "timeless.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,2000,1024,1,300\n")
    trace = written(tmp_path)
    known = {"TRACE": trace, "TIMELESS": trace.replace("pods.csv", "timeless.csv")}
    assert main(["bench", "packing", *(known.get(each, each) for each in flags)]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("seeds", ["", "a", "3-1", "1-"])
def test_seeds_that_are_none_are_refused(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "packing", "--gangs", "--seeds", seeds])
    assert stopped.value.code == 2
    assert "--seeds" in capsys.readouterr().err
