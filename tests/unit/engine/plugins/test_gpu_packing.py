"""GPUPacking: the steps of the simulator, read device by device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.plugins.gpu_packing import GPUPacking
from tests.support.engine import GPU, World, node
from tests.support.examples import examples


def plain(free: list[int], amount: int) -> int:
    """Devices are begun in the order of what they have left, the least first."""
    if all(left == 1000 for left in free):
        return max(33 - len(free), 0)
    number, each = (1, amount) if amount < 1000 else (amount // 1000, 1000)
    used = [left for left in sorted(free) if left >= each][:number]
    begun = sum(left == 1000 for left in used)
    if begun:
        return max(50 - begun, 33)
    return 100 - sum(left * 100 // 1000 for left in used) // 10


@examples(300)
@given(
    nodes=st.lists(
        st.lists(st.sampled_from([0, 0, 1, 333, 700, 1000]), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    amount=st.sampled_from([1, 300, 667, 999, 1000, 2000, 3000]),
)
def test_scores_are_what_the_steps_say(nodes: list[list[int]], amount: int) -> None:
    world = World()
    for row, used in enumerate(nodes):
        world.ledger.set_node(node(f"n{row}", cpu="64", extended={GPU: f"{1000 * len(used)}"}))
        for device, share in enumerate(used):
            if share:
                world.ledger.assume(world.pod(requests={GPU: f"{share}"}), row, (device,))
    scores = world.scores(world.pod(requests={GPU: f"{amount}"}), GPUPacking())
    assert scores is not None
    for used, score in zip(nodes, scores, strict=True):
        free = [1000 - share for share in used]
        if sum(left >= min(amount, 1000) for left in free) >= amount / 1000:
            assert score == plain(free, amount)
        assert 0 <= score <= 100


@pytest.mark.parametrize(("devices", "score"), [(1, 32), (8, 25), (33, 0), (256, 0)])
def test_of_nodes_that_nobody_uses_the_smaller_is_preferred(devices: int, score: int) -> None:
    world = World(node("a", extended={GPU: f"{devices}000"}))
    assert GPUPacking().score_row(300, world.ledger.columns, 0) == score


def test_it_has_nothing_to_say_about_pods_without_gpus() -> None:
    world = World(node("a", extended={GPU: "2000"}))
    assert world.scores(world.pod(requests={"cpu": "1"}), GPUPacking()) is None
