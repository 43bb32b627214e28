"""The sharding controller's configuration: what is accepted, what it becomes, and how a mistake is told."""

from __future__ import annotations

import pytest

from agent_scheduler.config.sharding import (
    DEFAULT_SCHEDULER_CONFIGS,
    ShardingConfiguration,
    load_sharding,
    parse_scheduler_configs,
)
from agent_scheduler.engine.shards.settings import (
    AllocationRateArgs,
    NodeLimitArgs,
    PlanSettings,
    PolicyArgs,
    Range,
    ShardSettings,
    WarmupArgs,
)
from tests.support.command_line import problem


def load(text: str) -> ShardingConfiguration:
    return load_sharding(text, source="sharding.yaml")


def one(body: str) -> str:
    """A file with one shard, `body` being what is said of it."""
    return "schedulerConfigs:\n- name: a\n" + "".join(f"  {line}\n" for line in body.splitlines())


LIMIT = "\n- {{name: node-limit, arguments: {{{}}}}}"


def policy(name: str, arguments: str) -> str:
    return one(f"policies:\n- name: {name}\n  arguments: {arguments}")


def rate(arguments: str) -> str:
    return policy("allocation-rate", f"{{{arguments}}}")


def limit(arguments: str) -> str:
    return policy("node-limit", f"{{{arguments}}}")


#: A file with one shard, behind which more may be said.
FEW = one("type: x")


def arguments(shard: ShardSettings) -> list[PolicyArgs]:
    return [each.arguments for each in shard.policies]


WHOLE = """
schedulerConfigs:
- name: volcano
  type: volcano
  policies:
  - name: allocation-rate
    weight: 2
    arguments: {minCPUUtil: 0, maxCPUUtil: 0.6, maxMemoryUtil: 0.8, resources: {nvidia.com/gpu: {max: 0.5}}}
  - name: node-limit
    arguments: {minNodes: 2, maxNodes: 100, maxPercent: 50, maxCapacity: {cpu: 1000, memory: 4Ti}}
- name: agent-scheduler
  type: agent
  policies:
  - name: warmup
    weight: 0
    arguments: {warmupLabel: example.com/warm, warmupLabelValue: "yes"}
shardSyncPeriod: 1m30s
enableNodeEventTrigger: false
leftover: agent-scheduler
stickiness: {gain: 0.2, margin: 0}
cordonedNodes: keep
notReadyNodes: include
"""


def test_everything_that_a_file_may_say_arrives() -> None:
    sharding = load(WHOLE)
    assert (sharding.sync_period, sharding.node_event_trigger, sharding.warnings) == (90.0, False, ())
    plan = sharding.plan
    assert plan.names == ("volcano", "agent-scheduler")
    assert [shard.type for shard in plan.shards] == ["volcano", "agent"]
    assert [each.weight for shard in plan.shards for each in shard.policies] == [2.0, 1.0, 0.0]
    rate, limit = arguments(plan.shards[0])
    assert isinstance(rate, AllocationRateArgs)
    assert rate.ranges == {
        "cpu": Range(min=0, max=0.6),
        "memory": Range(min=0, max=0.8),
        "nvidia.com/gpu": Range(min=0, max=0.5),
    }
    assert isinstance(limit, NodeLimitArgs)
    assert (limit.min_nodes, limit.max_nodes, limit.max_percent) == (2, 100, 50.0)
    assert limit.budget == {"cpu": 1_000_000, "memory": 4 << 40}
    assert arguments(plan.shards[1]) == [WarmupArgs(warmup_label="example.com/warm", warmup_label_value="yes")]
    assert (plan.leftover_shard, plan.cordoned_nodes, plan.not_ready_nodes) == ("agent-scheduler", "keep", "include")
    assert (plan.stickiness.gain, plan.stickiness.margin) == (0.2, 0.0)


def test_what_a_file_does_not_say_has_its_default() -> None:
    sharding = load(one("policies: [{name: allocation-rate}, {name: warmup}, {name: node-limit}]"))
    assert (sharding.sync_period, sharding.node_event_trigger) == (None, None)
    shard = sharding.plan.shards[0]
    assert arguments(shard) == [AllocationRateArgs(), WarmupArgs(), NodeLimitArgs()]
    assert AllocationRateArgs().ranges == {"cpu": Range(min=0, max=1)}
    assert WarmupArgs() == WarmupArgs(warmup_label="node.volcano.sh/warmup", warmup_label_value="true")
    assert [each.weight for each in shard.policies] == [1.0, 1.0, 1.0]
    assert sharding.plan == PlanSettings(shards=(shard,))


def test_leftover_nodes_go_to_the_first_shard_unless_the_file_says_otherwise() -> None:
    two = "schedulerConfigs: [{name: a}, {name: b}]\n"
    assert load(two).plan.leftover_shard == "a"
    assert load(two + "leftover: b").plan.leftover_shard == "b"
    assert load(two + "leftover: none").plan.leftover_shard is None


@pytest.mark.parametrize(
    ("said", "resource", "least"), [("minCPUUtil: 0.7", "cpu", 0.7), ("minMemoryUtil: 0.5", "memory", 0.5)]
)
def test_only_what_is_named_counts_and_up_to_1(said: str, resource: str, least: float) -> None:
    (found,) = arguments(load(rate(said)).plan.shards[0])
    assert isinstance(found, AllocationRateArgs)
    assert found.ranges == {resource: Range(min=least, max=1.0)}


MISTAKES = {
    "": "sharding.yaml: is empty; allowed: schedulerConfigs: a list of at least one shard",
    "# nothing\n": "sharding.yaml: is empty; allowed: schedulerConfigs",
    "{}": "sharding.yaml:1: schedulerConfigs: is missing; allowed: a list",
    "schedulerConfigs:\n": "sharding.yaml:1: schedulerConfigs: is missing; allowed: a list",
    "schedulerConfigs: []": "schedulerConfigs: found an empty list; allowed: at least one shard",
    "schedulerConfigs: {a: 1}": "schedulerConfigs: found an object; allowed: a list",
    "schedulerConfigs: [": "sharding.yaml:2: invalid YAML",
    "- a": "sharding.yaml:1: found a list; allowed: an object with",
    "schedulerConfig: []": "schedulerConfig: unknown key; did you mean schedulerConfigs?",
    "schedulerConfigs:\n- type: x": "sharding.yaml:2: schedulerConfigs[0].name: is missing",
    "schedulerConfigs:\n- name: ''": ("sharding.yaml:2: schedulerConfigs[0].name: found ''; allowed: an object's"),
    "schedulerConfigs:\n- name: A_b": "schedulerConfigs[0].name: found 'A_b'; allowed: an object's name",
    "schedulerConfigs:\n- name: none": "schedulerConfigs[0].name: found 'none'; allowed: the name of a shard",
    f"schedulerConfigs:\n- name: {'a' * 254}": "allowed: an object's name",
    "schedulerConfigs:\n- name: a\n- name: a": ("sharding.yaml:3: schedulerConfigs[1].name: found 'a' a second"),
    one("cpuUtilizationMin: 1.2"): ("sharding.yaml:3: schedulerConfigs[0].cpuUtilizationMin: found the number 1.2"),
    one("cpuUtilizationMax: -0.1"): "cpuUtilizationMax: found the number -0.1; allowed: a number from 0 to 1",
    one("cpuUtilizationMin: 0.7\ncpuUtilizationMax: 0.6"): (
        "cpuUtilizationMin: found the number 0.7; allowed: at most cpuUtilizationMax (0.6)"
    ),
    one("minNodes: -1"): "minNodes: found the number -1; allowed: a whole number, 0 or more",
    one("minNodes: 3\nmaxNodes: 2"): "maxNodes: found the number 2; allowed: 0 (any number), or minNodes (3)",
    one("minNodes: 2.5"): "minNodes: found the number 2.5; allowed: a whole number",
    one("policies:\n- weight: 1"): "policies[0].name: is missing",
    one("policies:\n- name: ''"): "policies[0].name: found ''; allowed: allocation-rate, node-limit, warmup",
    one("policies:\n- name: warm-up"): "found 'warm-up'; did you mean warmup? allowed: allocation-rate",
    one("policies:\n- name: warmup\n  weight: -1"): ("sharding.yaml:5: schedulerConfigs[0].policies[0].weight: found"),
    one("policies:\n- name: warmup\n  weight: heavy"): "weight: found 'heavy'; allowed: a number from 0",
    rate("minNodes: 2"): "arguments.minNodes: unknown key; it is an argument of node-limit",
    rate("minCpuUtil: 0"): "unknown key; did you mean minCPUUtil?",
    rate("minCPUUtil: low"): "arguments.minCPUUtil: found 'low'; allowed: a number from 0",
    rate("maxCPUUtil: 60"): "maxCPUUtil: found the number 60; allowed: a number from 0 to 1",
    rate("minCPUUtil: 0.7, maxCPUUtil: 0.6"): (
        "arguments.minCPUUtil: found the number 0.7; allowed: at most maxCPUUtil (0.6)"
    ),
    rate("minMemoryUtil: 0.7, maxMemoryUtil: 0.6"): (
        "arguments.minMemoryUtil: found the number 0.7; allowed: at most maxMemoryUtil (0.6)"
    ),
    rate("resources: {cpu: {min: 0.7, max: 0.6}}"): (
        "arguments.resources.cpu.min: found the number 0.7; allowed: at most max (0.6)"
    ),
    rate("minCPUUtil: 0, resources: {cpu: {min: 0.7}}"): (
        "arguments.resources.cpu: is also set by minCPUUtil and maxCPUUtil; allowed: one of both"
    ),
    policy("warmup", "{warmupLabel: ''}"): "arguments.warmupLabel: found ''; allowed: a label key",
    policy("warmup", "{warmupLabelValue: true}"): "warmupLabelValue: found true; allowed: a string",
    limit("maxPercent: 0"): "maxPercent: found the number 0; allowed: a number above 0",
    limit("maxPercent: 101"): "maxPercent: found the number 101; allowed:",
    limit("maxCapacity: {cpu: 10x}"): "maxCapacity.cpu: invalid quantity '10x'",
    limit("maxCapacity: {cpu: 0}"): "maxCapacity.cpu: found 0; allowed: a quantity above 0",
    limit("maxCapacity: {cpu: [1]}"): "maxCapacity.cpu: invalid quantity",
    limit("minNodes: 3, maxNodes: 2"): "arguments.maxNodes: found the number 2; allowed: 0",
    policy("node-limit", "[]"): "policies[0].arguments: found a list; allowed: an object",
    one("policies: [{name: node-limit, arguments: {maxNodes: 2}}]\nminNodes: 1"): (
        "minNodes: is also set by the policy node-limit; allowed: one of them"
    ),
    one("".join(["policies:", LIMIT.format("maxNodes: 2"), LIMIT.format("minNodes: 3")])): (
        "policies: found minNodes 3 and maxNodes 2"
    ),
    one("cpuUtilizationMin: 0.1\narguments: {minCPUUtil: 0.2}"): (
        "cpuUtilizationMin: is also set by arguments.minCPUUtil; allowed: one of them"
    ),
    FEW + "leftover: b": "leftover: found 'b'; allowed: none, or one of the shards: a",
    FEW + "shardSyncPeriod: 60": "shardSyncPeriod: found the number 60; allowed: a duration",
    FEW + "shardSyncPeriod: 0s": "shardSyncPeriod: found 0s; allowed: a duration above 0",
    FEW + "enableNodeEventTrigger: 1": "enableNodeEventTrigger: found the number 1; allowed: true, false",
    FEW + "stickiness: {gain: 2}": "stickiness.gain: found the number 2; allowed: a number from 0 to 1",
    FEW + "cordonedNodes: stay": "cordonedNodes: found 'stay'; allowed: exclude, include, keep",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    assert message in problem(load, text)


def test_older_keys_become_policies_as_volcano_has_it() -> None:
    older = "cpuUtilizationMin: 0.7\ncpuUtilizationMax: 1.0\npreferWarmupNodes: true\nminNodes: 2\nmaxNodes: 10"
    sharding = load(one(older))
    given = AllocationRateArgs(min_cpu_util=0.7, max_cpu_util=1.0), NodeLimitArgs(min_nodes=2, max_nodes=10)
    assert arguments(sharding.plan.shards[0]) == [given[0], WarmupArgs(), given[1]]
    places = [f"schedulerConfigs[0].{line.split(':')[0]}" for line in older.splitlines()]
    assert [warning.split(": ")[1] for warning in sharding.warnings] == places


def test_older_arguments_of_a_shard_are_those_of_its_allocation_rate() -> None:
    sharding = load(one("arguments: {minCPUUtil: 0.2}\ncpuUtilizationMax: 0.4"))
    assert arguments(sharding.plan.shards[0]) == [AllocationRateArgs(min_cpu_util=0.2, max_cpu_util=0.4)]


def test_older_limits_become_a_policy_beside_others_too() -> None:
    sharding = load(one("policies: [{name: warmup}]\nmaxNodes: 3"))
    assert arguments(sharding.plan.shards[0]) == [WarmupArgs(), NodeLimitArgs(max_nodes=3)]


def test_older_keys_that_have_no_effect_are_told() -> None:
    sharding = load(one("policies: [{name: warmup}]\ncpuUtilizationMin: 0.5\npreferWarmupNodes: true"))
    assert arguments(sharding.plan.shards[0]) == [WarmupArgs()]
    assert sharding.warnings == (
        "sharding.yaml:4: schedulerConfigs[0].cpuUtilizationMin: has no effect beside policies",
        "sharding.yaml:5: schedulerConfigs[0].preferWarmupNodes: has no effect beside policies",
    )


def test_a_shard_of_which_only_the_name_is_known_takes_any_rate() -> None:
    assert arguments(load("schedulerConfigs: [{name: a}]").plan.shards[0]) == [AllocationRateArgs()]


def test_the_flag_has_volcanos_default() -> None:
    sharding = parse_scheduler_configs(DEFAULT_SCHEDULER_CONFIGS)
    assert [(shard.name, shard.type) for shard in sharding.plan.shards] == [
        ("volcano", "volcano"),
        ("agent-scheduler", "agent"),
    ]
    low, high = (AllocationRateArgs(min_cpu_util=a, max_cpu_util=b) for a, b in ((0.0, 0.6), (0.7, 1.0)))
    few = NodeLimitArgs(min_nodes=2, max_nodes=100)
    assert arguments(sharding.plan.shards[0]) == [low, few]
    assert arguments(sharding.plan.shards[1]) == [high, WarmupArgs(), few]
    assert (sharding.sync_period, sharding.node_event_trigger, sharding.warnings) == (None, None, ())


def test_the_flag_is_read_as_go_reads_it() -> None:
    sharding = parse_scheduler_configs("a:x:-inf:infinity:T:0:0, b::0:1:0:0:0")
    any_rate = AllocationRateArgs(min_cpu_util=0.0, max_cpu_util=1.0)
    assert arguments(sharding.plan.shards[0]) == [any_rate, WarmupArgs()]
    assert arguments(sharding.plan.shards[1]) == [any_rate]


MISTAKES_IN_THE_FLAG = {
    "": "--scheduler-configs: found ''; allowed: name:type:min:max:prefer_warmup:minNodes:maxNodes",
    "a:b": "found 'a:b'; allowed: name:type:min:max",
    "a:b:0:1:true:1:2:3": "found 'a:b:0:1:true:1:2:3'; allowed: name:type:min:max",
    "a:b:0:1:true:1:2,": "found ''; allowed: name:type:min:max",
    ":b:0:1:true:1:2": "':b:0:1:true:1:2', name: found ''",
    "a:b:x:1:true:1:2": "'a:b:x:1:true:1:2', min: found 'x'; allowed: a number from 0 to 1",
    "a:b:0:nan:true:1:2": "max: found the number nan; allowed: a number from 0 to 1",
    "a:b:0:2:true:1:2": "max: found the number 2.0; allowed: a number from 0 to 1",
    "a:b:0.5:0.4:true:1:2": "min: found the number 0.5; allowed: at most",
    "a:b:0:1:maybe:1:2": "prefer_warmup: found 'maybe'; allowed: true, false",
    "a:b:0:1:true:1.5:2": "minNodes: found '1.5'; allowed: a whole number, 0 or more",
    "a:b:0:1:true:-1:2": "minNodes: found the number -1; allowed: a whole number, 0 or more",
    "a:b:0:1:true:3:2": "maxNodes: found the number 2; allowed: 0 (any number), or minNodes (3)",
    "a:b:0:1:true:1:2,a:b:0:1:true:1:2": "name: found 'a' a second time",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES_IN_THE_FLAG.items())
def test_a_mistake_in_the_flag_is_told_with_its_part(text: str, message: str) -> None:
    told = problem(parse_scheduler_configs, text)
    assert message in told and told.startswith("--scheduler-configs: ")
