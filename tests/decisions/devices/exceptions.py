"""Intended differences of recorded decisions, because kube-scheduler 1.36.2 is wrong there.

Docs: `docs/decisions/0025-devices-where-kube-scheduler-errs.md`. A recorded allocation of devices with equal values of
a `distinctAttribute` needs no rule here: the plain rules find that it is invalid.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest

from agent_scheduler.engine.dra.node_devices import Totals, totals
from agent_scheduler.engine.rules import device_backed
from tests.decisions.comparing import nonzero
from tests.decisions.devices.cases import DeviceCase
from tests.decisions.devices.engine import DeviceEngine, profile_of
from tests.decisions.plain.world import name

#: The plain rules' finding for two devices that had to differ.
ALIKE: Final = "devices do not differ in "


def counts_former_devices(case: DeviceCase) -> bool:
    """Return whether each node's recorded scores are ours with more of its devices counted in the resource's class.

    kube-scheduler caches by the names of pool and device that one was of the class, whatever its slice has later:
    devices count that had these names in an earlier case.
    """
    there = {
        name(node): sum(
            len(each["spec"].get("devices") or ())
            for each in case.cluster.slices
            if each["spec"].get("nodeName") in (None, name(node))
        )
        for node in case.cluster.nodes
    }
    recorded, unexplained = nonzero(case.scores), set(case.scores)
    for offered, taken in product(range(max(there.values()) + 1), repeat=2):

        def former(resource: str, devices: Any, node: Any, of: tuple[int, int] = (offered, taken)) -> Totals:
            now = totals(resource, devices, node)
            more = Totals(now.offered + of[0], now.taken + of[1])
            return more if more.taken <= more.offered <= there[node.name] else now

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(device_backed, "totals", former)
            found = DeviceEngine(case.cluster, case.claims, profile_of(case)).decide(dict(case.pending))
        scores = nonzero(found.scores)
        same = {node for node in unexplained if scores.get(node) == recorded.get(node)}
        unexplained -= {node for node in same if found.final[node] == case.final[node]}
    return not unexplained
