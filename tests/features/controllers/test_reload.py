"""The ConfigMap while the controller runs and at its start: which changes take effect, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded import until
from tests.support.sharded import CONFIG_MAP, NAME, NAMESPACE, limits
from tests.support.sharding import Rounds, World, following, world

#: The flags of these tests: one shard of all nodes.
ALL = "all:volcano:0.0:1.0:false:0:0"

UNUSABLE: list[Any] = [
    "",
    "schedulerConfigs: []\n",
    "schedulerConfigs: [\n",
    "- no\n",
    None,
    {"schedulerConfigs": [{"name": "a", "policies": [{"name": "no-such-policy"}]}]},
    {"schedulerConfigs": [{"name": "a", "policies": [{"name": "node-limit", "arguments": {"maxNode": 1}}]}]},
    {"schedulerConfigs": [{"name": "a"}, {"name": "a"}]},
    {"schedulerConfigs": [{"policies": []}]},
]


#: Always tested: a text that cannot be parsed, and one with an unknown field.
NUMBERS = [pytest.param(number, marks=() if number in (2, 5) else pytest.mark.wide) for number in range(len(UNUSABLE))]


async def refused(it: World, times: int) -> None:
    await until(
        lambda: (
            it.metric("agent_scheduler_config_reloads_total", result="refused") == times
            and it.metric("agent_scheduler_config_last_reload_successful") == 0
        )
    )


@pytest.mark.parametrize("number", NUMBERS)
async def test_a_configuration_that_cannot_be_used_at_the_start_changes_nothing_and_is_told_of(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(monkeypatch)
    async with world() as it:
        await it.add_nodes(3)
        await it.add_shard("a", ["n000"])
        await it.add_shard("b", ["n001", "gone"])
        await it.configure(UNUSABLE[number])
        it.start(configs=ALL, period=0.05)
        event = await it.until_event("InvalidShardingConfiguration")
        regarding = event["regarding"]
        assert (regarding["kind"], regarding["namespace"], regarding["name"]) == ("ConfigMap", NAMESPACE, NAME)
        assert event["type"] == "Warning"
        assert event["note"].startswith(f"ConfigMap {NAMESPACE}/{NAME}, sharding.yaml")
        assert event["note"].endswith("In effect: nothing, shards are left as they are.")
        await refused(it, 1)
        await rounds.go_on()
        assert await it.specs() == {"a": ["n000"], "b": ["n001", "gone"]}
        assert it.metric("agent_scheduler_sharding_writes_total") == 0
        # The error ends with a valid configuration.
        await it.configure(limits(a=2, b=1))
        await it.until_counts(a=2, b=1)
        assert it.metric("agent_scheduler_config_last_reload_successful") == 1


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.promise("S24")
async def test_a_configuration_that_comes_to_be_unusable_leaves_the_one_before_in_effect(number: int) -> None:
    async with following(4, config=limits(a=2, b=1), configs=ALL) as it:
        before = await it.until_counts(a=2, b=1)
        await it.configure(UNUSABLE[number])
        event = await it.until_event("InvalidShardingConfiguration")
        assert event["note"].endswith(f"In effect: ConfigMap {NAMESPACE}/{NAME}, sharding.yaml.")
        await refused(it, 1)
        # It continues with the last valid one.
        await it.delete_node(before["b"][0])
        await it.until_counts(a=2, b=1)


@pytest.mark.promise("S22")
async def test_changes_take_effect_while_it_runs_and_no_node_is_ever_in_two_shards() -> None:
    async with following(9, config=limits(a=3, b=3, c=3), configs=ALL) as it:
        await it.until_counts(a=3, b=3, c=3)
        await it.configure(limits(a=1, b=1, c=1))
        await it.until_counts(a=1, b=1, c=1)
        await it.configure(limits(c=5, b=2, a=2))
        await it.until_counts(a=2, b=2, c=5)
        await it.configure(limits(d=9, a=3))
        # A shard that is removed is deleted only after a while.
        await it.until_counts(a=0, b=0, c=0, d=9)
        await it.configure({**limits(a=4), "leftover": "a"})
        await it.until_counts(a=4, b=0, c=0, d=0)
        applied = await it.events("ShardingConfigured")
        assert applied[-1]["note"] == "In effect. Shards: a."


async def test_the_flags_hold_without_a_config_map_until_there_is_one() -> None:
    async with following(4, configs=ALL) as it:
        await it.until_counts(all=4)
        await it.configure({"schedulerConfigs": [{"name": "all", "policies": []}, {"name": "b"}]})
        await it.until_counts(all=4, b=0)
        await it.configure(limits(all=1, b=2))
        await it.until_counts(all=1, b=2)


async def test_a_config_map_that_is_deleted_stays_in_effect() -> None:
    async with following(4, config=limits(a=2, b=1), configs=ALL) as it:
        await it.until_counts(a=2, b=1)
        await it.delete(CONFIG_MAP)
        await until(lambda: it.metric("agent_scheduler_watch_events_total", kind="ConfigMap", type="deleted"))
        await it.add_node("new")
        await it.delete_node("n000")
        await it.until_counts(a=2, b=1)
        assert "all" not in await it.specs()
