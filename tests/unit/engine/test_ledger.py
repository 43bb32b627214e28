"""The ledger: what test_ledger_model does not draw: volumes, and devices that others have named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.gpus import RESOURCE
from tests.support.engine import World, node


def test_a_pod_that_goes_leaves_no_volumes_behind_though_its_node_is_not_known() -> None:
    """Or its claims would be taken for used for ever."""
    world = World()
    pod = world.pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    world.ledger.set_pod(pod, "nowhere")
    assert world.ledger.volume_use.users(("default", "c"))
    world.ledger.remove_pod(pod.uid)
    assert not world.ledger.volume_use.users(("default", "c"))
    assert contradictions(world.ledger) == []


@pytest.mark.parametrize(
    ("seen", "counted"),
    [
        # Others have bound it and named no devices: no later process would count it on any.
        ([()], (1000, 1000)),
        # Devices that others have given it take the place of those chosen here.
        ([(1,)], (1000, 300)),
        # An annotation that goes takes none from it: its containers have it for as long as they run.
        ([(0,), ()], (300, 1000)),
    ],
)
def test_a_pod_whose_bind_is_under_way_is_counted_on_the_gpus_that_others_show_it_with(
    seen: list[tuple[int, ...]], counted: tuple[int, int]
) -> None:
    world = World(node("a", extended={RESOURCE: "2000"}))
    pod, gpus = world.pod(requests={RESOURCE: "700"}), world.ledger.columns.gpus
    world.ledger.assume(pod, 0)
    assert gpus[0] == (300, 1000)
    for devices in seen:
        before = gpus[0]
        changed = world.ledger.set_pod(replace(pod, node_name="a", gpus=devices), "a")
        assert changed is (gpus[0] != before)
    assert gpus[0] == counted and contradictions(world.ledger) == []
