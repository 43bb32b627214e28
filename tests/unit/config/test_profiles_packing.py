"""BestFit, DotProduct and Fragmentation as a configuration file has them: what is taken, and what is told otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.engine.framework.args import FragmentationArgs
from agent_scheduler.engine.framework.plugin import Profile, Reads
from agent_scheduler.engine.plugins.best_fit import BestFit
from agent_scheduler.engine.plugins.fragmentation import Fragmentation
from agent_scheduler.engine.state.targetworkload import kind_of
from apimachinery.codec import decode
from tests.support.command_line import problem
from tests.support.engine import GPU, World, node
from tests.support.handles import handle_of

HEADER = """apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
profiles:
- plugins:
    score:
      enabled: [{name: Fragmentation, weight: 100}, {name: BestFit}, {name: DotProduct}, {name: GPUPacking}]
      disabled: [{name: "*"}]
"""


def profile(name: str = "", args: str = "") -> Profile:
    config = f"  pluginConfig: [{{name: {name}, args: {args}}}]\n" if name else ""
    return build_profiles(load_text(HEADER + config, source="f.yaml"))["agent-scheduler"]


def score(made: Profile, kind: type[Any]) -> Any:
    return next(each.plugin for each in made.scores if isinstance(each.plugin, kind))


OFFERS = {"cpu": "4", "memory": "8Gi", GPU: "2000", "example.com/x": "5"}


def state(plugin: Any) -> Any:
    """Of a pod in a cluster with a node that offers everything."""
    return plugin.prepare(World().pod(requests={"cpu": "1"}).cls, handle_of(everything().ledger))


def everything() -> World:
    cpu, memory, *_ = OFFERS.values()
    extended = {name: amount for name, amount in OFFERS.items() if "/" in name}
    return World(node("a", cpu=cpu, memory=memory, extended=extended))


def parts(plugin: Any) -> dict[str, float]:
    """Resource -> what a node gains on which all of it is taken, of all that it could gain."""
    gained = {}
    for name, amount in OFFERS.items():
        world = everything()
        state = plugin.prepare(world.pod().cls, handle_of(world.ledger))
        world.place("a", requests={name: amount})
        gained[name] = plugin.score_row(state, world.ledger.columns, 0)
    return {name: gain / sum(gained.values()) for name, gain in gained.items() if gain}


def test_what_is_not_given_is_the_default() -> None:
    made = profile()
    weights = {each.plugin.name: each.weight for each in made.scores}
    assert weights == {"Fragmentation": 100, "BestFit": 1, "DotProduct": 1, "GPUPacking": 1}
    third = pytest.approx(1 / 3, abs=0.02)
    assert parts(score(made, BestFit)) == {"cpu": third, "memory": third, GPU: third}
    assert score(made, Fragmentation).reads == {Reads.TARGET_WORKLOAD}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("[]", {"cpu": 1 / 3, "memory": 1 / 3, GPU: 1 / 3}),
        ("[{name: cpu, weight: 3}, {name: example.com/x}]", {"cpu": 0.75, "example.com/x": 0.25}),
        ("[{name: cpu, weight: 0}, {name: memory, weight: 0}]", {"cpu": 0.5, "memory": 0.5}),
        ("[{name: cpu}, {name: example.com/nobody, weight: 9}]", {"cpu": 1.0}),
    ],
)
def test_resources_count_by_weight_among_those_there(resources: str, expected: dict[str, float]) -> None:
    made = score(profile("BestFit", f"{{resources: {resources}}}"), BestFit)
    assert parts(made) == {name: pytest.approx(part, abs=0.02) for name, part in expected.items()}


WORKLOAD = """{
    resources: [{name: cpu, weight: 2}, {name: example.com/x}],
    targetWorkload: [
      {requests: {cpu: 0.5, memory: 1Gi, agent-scheduler.io/gpu-milli: 500}, weight: 3},
      {requests: {cpu: 2, agent-scheduler.io/gpu-milli: "2000"}, nodeSelector: {zone: a}},
      {requests: {example.com/x: 1}, weight: 0.5, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
        {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}]}"""


def test_a_target_workload_is_read_in_the_units_of_the_scheduler() -> None:
    plugin = score(profile("Fragmentation", WORKLOAD), Fragmentation)
    assert plugin.reads == frozenset()
    measure = state(plugin).measure
    assert (measure.labels, measure.resources) == ({"zone", "disk"}, ("cpu", "example.com/x"))
    world = World(node("a", labels={"zone": "a"}), node("b", labels={"disk": "hdd"}), node("c"))
    assert [bin(each) for each in measure.reach(world.ledger.columns)] == ["0b1", "0b10", "0b0"]
    args = decode(yaml.safe_load(WORKLOAD), FragmentationArgs)
    (first, second, third) = args.given
    assert first == (kind_of({"cpu": 500, "memory": 2**30, GPU: 500}, {}), 3 / 4.5)
    assert second == (kind_of({"cpu": 2000, GPU: 2000}, {"zone": "a"}), 1 / 4.5)
    assert (dict(third[0].requests), third[1]) == ({"example.com/x": 1}, 0.5 / 4.5)


TERM = "{matchExpressions: [{key: a, operator: Is}]}"
AFFINITY = f"{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{TERM}]}}}}"
A_QUANTITY = "allowed: a quantity such as 500m, 2 or 1Gi"
#: What is said of a pod, the place of the mistake, and what is told of it.
MISTAKES = [
    ("{}", "requests", "is missing; allowed: an object"),
    ("{requests: {}}", "requests", "found nothing; allowed: at least one resource and its quantity"),
    ("{requests: [cpu]}", "requests", "allowed: an object"),
    ("{requests: {cpu: true}}", "requests.cpu", f"found true; {A_QUANTITY}"),
    ("{requests: {cpu: [1]}}", "requests.cpu", A_QUANTITY),
    ("{requests: {cpu: 1x}}", "requests.cpu", "1x"),
    ("{requests: {cpu: .nan}}", "requests.cpu", "nan"),
    ("{requests: {cpu: -1}}", "requests.cpu", "found -1; allowed: 0 or more"),
    (
        "{requests: {agent-scheduler.io/gpu-milli: 1500}}",
        "requests.agent-scheduler.io/gpu-milli",
        "1500 is neither a share of one GPU nor a number of whole ones; allowed: up to 1000, or a multiple of it",
    ),
    ("{requests: {cpu: 1}, weight: 0}", "weight", "found the number 0; allowed: a number above 0"),
    ("{requests: {cpu: 1}, weight: -1}", "weight", "found the number -1; allowed"),
    ("{requests: {cpu: 1}, weight: .inf}", "weight", "allowed"),
    ("{requests: {cpu: 1}, weight: .nan}", "weight", "allowed"),
    ("{requests: {cpu: 1}, number: 3}", "number", "unknown key"),
    ("{requests: {cpu: 1}, nodeSelector: {zone: 3}}", "nodeSelector.zone", "allowed: a string"),
    (
        f"{{requests: {{cpu: 1}}, nodeAffinity: {AFFINITY}}}",
        "nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator",
        "'Is' is unknown; allowed: In, NotIn",
    ),
]


@pytest.mark.parametrize(("pod", "place", "message"), MISTAKES)
def test_a_mistake_in_the_target_workload_is_told_with_its_place(pod: str, place: str, message: str) -> None:
    told = problem(profile, "Fragmentation", f"{{targetWorkload: [{{requests: {{cpu: 1}}}}, {pod}]}}")
    assert told.startswith(f"f.yaml:8: profiles[0].pluginConfig[0].args.targetWorkload[1].{place}: ")
    assert message in told


MISTAKES_IN_RESOURCES = {
    "{resources: [{name: cpu}, {name: cpu}]}": "resources[1].name: found 'cpu' a second time",
    "{resources: [{name: cpu, weight: 101}]}": "resources[0].weight: found the number 101; allowed: a whole",
    "{resources: [{weight: 1}]}": "resources[0].name: is missing",
    "{resource: []}": "resource: unknown key; did you mean resources?",
}


@pytest.mark.parametrize("name", ["BestFit", "DotProduct", "Fragmentation"])
@pytest.mark.parametrize(("args", "message"), MISTAKES_IN_RESOURCES.items())
def test_a_mistake_in_resources_is_told_with_its_place(name: str, args: str, message: str) -> None:
    assert f"profiles[0].pluginConfig[0].args.{message}" in problem(profile, name, args)


def test_gpu_packing_takes_no_arguments() -> None:
    assert "args.resources: unknown key; allowed: none" in problem(profile, "GPUPacking", "{resources: []}")
