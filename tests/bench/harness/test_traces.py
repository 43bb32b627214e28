"""Trace readers: the pods and nodes of a valid file, and the place that an error names in an invalid one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bench.harness.specs import GPU_MILLI, GPU_MODEL_LABEL, NodeSpec, PodSpec, Refusals, compressed, paced
from bench.harness.traces import TraceError, read_trace
from tests.support.needed import SHARED, need

TRACES = SHARED / "traces"

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,0,\nn1,64000,2048,2,T4\nn2,96000,4096,8,G2\n"
PODS_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,x\n"


def files(folder: Path, nodes: str, pods: str) -> str:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return f"openb:{folder}/nodes.csv,{folder}/pods.csv"


def test_openb_nodes_advertise_their_cards_and_model(tmp_path: Path) -> None:
    workload = read_trace(files(tmp_path, NODES, PODS_HEADER + "p,1,1,0,0,,LS,R,0,1,\n"))
    plain, gpu, _ = workload.nodes
    assert plain.allocatable() == {"cpu": 32000, "memory": 1 << 30, "pods": 110}
    assert plain.labels == {}
    assert gpu.allocatable() == {"cpu": 64000, "memory": 2 << 30, "pods": 110, GPU_MILLI: 2000}
    assert gpu.labels == {GPU_MODEL_LABEL: "T4"}


def test_an_openb_share_keeps_its_size(tmp_path: Path) -> None:
    rows = "a,6000,1024,1,470,T4|G2,LS,R,10,20,\nb,1000,0,8,1000,,BE,R,5,,\nc,0,512,0,0,,BE,R,7,7,\n"
    pods = b, c, a = read_trace(files(tmp_path, NODES, PODS_HEADER + rows)).pods
    times = [(pod.name, pod.arrival, pod.life) for pod in pods]
    assert times == [("b", 0.0, None), ("c", 2.0, 0.0), ("a", 5.0, 10.0)]
    assert a.requests == {"cpu": 6000, "memory": 1 << 30, GPU_MILLI: 470}
    assert a.affinity == {GPU_MODEL_LABEL: ("T4", "G2")}
    assert b.requests == {"cpu": 1000, GPU_MILLI: 8000}
    assert c.requests == {"memory": 512 << 20}


@pytest.mark.parametrize(
    "text",
    [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,6000,1024,1,470\n",
        "\ufeffname,cpu_milli,memory_mib,num_gpu,gpu_milli\r\na,6000,1024,1,470\r\n",
        'gpu_milli,"num_gpu",memory_mib,cpu_milli,qos,name\n"470",1,"1024",6000,"LS, BE",a\n',
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,deletion_time\na,6000.0,1024,1.0,470,,7\n",
    ],
    ids=["five-columns", "windows", "another-order-and-quotes", "some-more-columns"],
)
def test_a_pod_list_needs_only_five_columns_in_any_order(tmp_path: Path, text: str) -> None:
    trace = files(tmp_path, NODES, text)
    expected = PodSpec(name="a", requests={"cpu": 6000, "memory": 1 << 30, GPU_MILLI: 470})
    assert read_trace(trace).pods == (expected,)


def test_a_share_of_several_gpus_is_refused_with_its_place(tmp_path: Path) -> None:
    trace = files(tmp_path, NODES, PODS_HEADER + "a,1,1,2,500,,LS,R,0,1,\n")
    with pytest.raises(TraceError, match="line 2, column gpu_milli: expected 1000, as num_gpu is 2"):
        read_trace(trace)


@pytest.mark.parametrize(
    ("nodes", "pods", "said"),
    [
        ("sn,cpu_milli\n", "", "nodes.csv, line 1, column memory_mib: missing"),
        ("", "", "nodes.csv, line 1, column sn: missing"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "", "nodes.csv, line 2: expected at least one row"),
        (NODES + "n3,x,1,0,\n", "", "nodes.csv, line 5, column cpu_milli: expected a number of at least 1, found 'x'"),
        (NODES + "n3,1,1.5,0,\n", "", "nodes.csv, line 5, column memory_mib: expected a whole number, found '1.5'"),
        (NODES + "n3,1,1,-1,\n", "", "nodes.csv, line 5, column gpu: expected a number from 0 to 1024, found '-1'"),
        (NODES + "n1,1,1,0,\n", "", "line 5, column sn: expected a name of its own (line 3 has it too), found 'n1'"),
        (NODES + "N_3,1,1,0,\n", "", "nodes.csv, line 5, column sn: expected a name of lower-case letters"),
        (NODES + "n3,1,1\n", "", "nodes.csv, line 5, column gpu: expected 5 cells, found 3"),
        (NODES + "n3,1,1,0,,9\n", "", "nodes.csv, line 5, column number 6: expected 5 cells, found 6"),
        (NODES + "n3,1,1,1,a b\n", "", "nodes.csv, line 5, column model: expected letters"),
        (NODES + "n3,nan,1,1,a\n", "", "nodes.csv, line 5, column cpu_milli: expected a number"),
        (NODES + 'n3,1,1,1,"a\n', "", "nodes.csv, line 5: not CSV"),
        (NODES, PODS_HEADER + "p,1,1,1,0,,,,0,1,\n", "line 2, column gpu_milli: expected a number from 1 to 1000"),
        (NODES, PODS_HEADER + "p,1,1,1,1001,,,,0,1,\n", "pods.csv, line 2, column gpu_milli"),
        (NODES, PODS_HEADER + "p,1,1,0,500,,,,0,1,\n", "pods.csv, line 2, column gpu_milli"),
        (NODES, PODS_HEADER + "p,1,1,0,0,,,,5,1,\n", "line 2, column deletion_time: expected a time not before"),
        (NODES, PODS_HEADER + "\np,1,1,0,0,,,,,1,\n", "pods.csv, line 3, column creation_time: expected a number"),
        (NODES, "name,cpu_milli,memory_mib,num_gpu\n", "pods.csv, line 1, column gpu_milli: missing"),
        (NODES, "name,name\n", "pods.csv, line 1, column cpu_milli: missing"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_refused_with_file_line_and_column(tmp_path: Path, nodes: str, pods: str, said: str) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(files(tmp_path, nodes, pods))
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["openb", "borg:a,b", "openb:a", "azure-llm:a,b", "openb:"])
def test_a_trace_of_no_known_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(TraceError, match="expected"):
        read_trace(text)


def test_a_file_that_is_not_there_or_not_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: cannot be read: No such file"):
        read_trace(f"azure-llm:{tmp_path}/none.csv")
    (tmp_path / "bad.csv").write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\n\xff\xfe\n")
    with pytest.raises(TraceError, match=r"bad\.csv, near line \d+: not UTF-8"):
        read_trace(f"azure-llm:{tmp_path}/bad.csv")


def test_llm_requests_arrive_by_their_timestamps_and_live_for_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "llm.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.5000000,5000,40\n2023-11-16 18:17:05.0000000,0,20\n"
    )
    first, second = read_trace(f"azure-llm:{file}").pods
    assert (first.arrival, first.life) == (0.0, 2.0)
    assert (second.arrival, second.life) == (1.5, 0.5)
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n")
    with pytest.raises(TraceError, match="line 2, column TIMESTAMP: expected a time such as"):
        read_trace(f"azure-llm:{file}")


def test_function_calls_arrive_a_duration_before_their_end(tmp_path: Path) -> None:
    file = tmp_path / "functions.csv"
    file.write_text(f"app,func,end_timestamp,duration\n{'a' * 64},f,12.5,2.5\nb,g,11,0.5\n")
    first, second = read_trace(f"azure-functions:{file}").pods
    assert (first.arrival, first.life, first.labels["app"]) == (0.0, 2.5, "a" * 63)
    assert (second.arrival, second.life) == (0.5, 0.5)


def test_speed_and_rate_say_when_pods_arrive() -> None:
    pods = [PodSpec(name=str(n), requests={}, arrival=n * 10.0, life=4.0) for n in range(3)]
    assert [(pod.arrival, pod.life) for pod in compressed(pods, 4)] == [(0.0, 1.0), (2.5, 1.0), (5.0, 1.0)]
    assert [(pod.arrival, pod.life) for pod in paced(pods, 2)] == [(0.0, 4.0), (0.5, 4.0), (1.0, 4.0)]
    assert [pod.arrival for pod in paced(pods, None)] == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="more than 0"):
        compressed(pods, 0)
    with pytest.raises(ValueError, match="more than 0"):
        paced(pods, -1)


def test_a_pod_that_no_empty_node_could_hold_is_told_from_one_that_waits() -> None:
    nodes = [
        NodeSpec(name="a", cpu_milli=1000, memory=100, labels={"model": "x"}),
        NodeSpec(name="b", cpu_milli=4000, memory=10, labels={"model": "y"}),
    ]
    refusals = Refusals(nodes)
    lacks, only_x = "no empty node has enough of", ("x", "z")
    for requests, models, why in (
        ({"cpu": 4000}, (), None),
        ({"cpu": 2000, "memory": 50}, (), f"{lacks} cpu, memory"),
        ({"cpu": 2000}, only_x, f"{lacks} cpu"),
        ({}, ("z",), "no node has model in z"),
        ({"cpu": 1000}, only_x, None),
        ({"gpu": 1}, (), f"{lacks} gpu"),
    ):
        affinity = {"model": models} if models else {}
        assert refusals.why(PodSpec(name="p", requests=requests, affinity=affinity)) == why


@pytest.mark.wide
@pytest.mark.parametrize(
    ("trace", "nodes", "pods", "hopeless"),
    [
        ("openb:openb/openb_node_list_all_node.csv,openb/openb_pod_list_default.csv", 1523, 8152, 0),
        ("openb:openb/openb_node_list_all_node.csv,openb/openb_pod_list_gpuspec33.csv", 1523, 8152, 1),
        ("openb:openb/openb_node_list_all_node.csv,openb/openb_pod_list_multigpu50.csv", 1523, 9061, 0),
        ("openb:openb/openb_node_list_all_node.csv,openb/openb_pod_list_cpu250.csv", 1523, 9420, 0),
        ("azure-llm:azure/AzureLLMInferenceTrace_code.csv", 0, 8819, None),
        ("azure-functions:azure/azure2021_functions_sample198.csv", 0, 199, None),
    ],
)
def test_the_published_traces_are_read_whole(trace: str, nodes: int, pods: int, hopeless: int | None) -> None:
    need(TRACES.is_dir(), f"{TRACES} is not there")
    kind, _, names = trace.partition(":")
    workload = read_trace(f"{kind}:{','.join(str(TRACES / name) for name in names.split(','))}")
    assert (len(workload.nodes), len(workload.pods)) == (nodes, pods)
    assert workload.pods[0].arrival == 0
    assert all(a.arrival <= b.arrival for a, b in itertools.pairwise(workload.pods))
    if hopeless is not None:
        refusals = Refusals(workload.nodes)
        assert sum(refusals.why(pod) is not None for pod in workload.pods) == hopeless
