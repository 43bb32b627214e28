"""Who waits for a group, and what wakes them."""

from __future__ import annotations

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.plugins.gang_scheduling import TOO_FEW, GangScheduling
from tests.support.engine import wakes
from tests.unit.engine.gangs.test_native import group, member


def plugin(groups: NativeGroups) -> GangScheduling:
    return GangScheduling().seeing(Ledger(), Devices(), groups)


def woken(gangs: GangScheduling, happened: ClusterEvent, old: object | None, new: object) -> bool:
    """Whether a member of the group is."""
    return wakes(gangs, member("waiting"), happened, old, new)


def test_a_member_waits_for_its_group_and_then_for_the_others() -> None:
    groups = NativeGroups()
    gangs = plugin(groups)
    first = member("first")
    groups.see(first)
    assert gangs.pre_enqueue(first) == 'waiting for pods\'s pod group "gang" to appear in scheduling queue'
    groups.set(group(2))
    assert gangs.pre_enqueue(first) == TOO_FEW
    groups.see(member("second"))
    assert gangs.pre_enqueue(first) is None
    assert not gangs.concerns(member("alone", None))


def test_a_member_that_comes_wakes_the_others_when_it_makes_them_enough() -> None:
    groups = NativeGroups()
    groups.set(group(2))
    gangs = plugin(groups)
    for each, expected in ((member("first"), False), (member("second"), True), (member("third"), True)):
        groups.see(each)
        assert woken(gangs, ev.UNSCHEDULED_POD_ADD, None, each) is expected
        assert woken(gangs, ev.ASSIGNED_POD_ADD, None, each) is expected
    for other in (member("elsewhere", "other"), member("alone", None)):
        assert not woken(gangs, ev.UNSCHEDULED_POD_ADD, None, other)


def test_a_group_wakes_its_members_when_it_comes_and_when_it_needs_fewer() -> None:
    groups = NativeGroups()
    gangs = plugin(groups)
    for name in ("a", "b"):
        groups.see(member(name))
    for needed, expected in ((3, False), (2, True)):
        groups.set(group(needed))
        assert woken(gangs, ev.POD_GROUP_ADD, None, group(needed)) is expected
    assert woken(gangs, ev.POD_GROUP_UPDATE, group(3), group(2))
    assert not woken(gangs, ev.POD_GROUP_UPDATE, group(2), group(3))
    assert woken(gangs, ev.POD_GROUP_UPDATE, group(2), group(2, uid="again"))


def test_without_groups_to_ask_about_every_member_that_comes_wakes_the_others() -> None:
    assert wakes(GangScheduling(), member("waiting"), ev.UNSCHEDULED_POD_ADD, None, member("other"))
    assert GangScheduling().pre_enqueue(member("waiting")) is None
