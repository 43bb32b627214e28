"""Several leases at once: all of them, or nothing may be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.kube.leases import Leases


@pytest.mark.parametrize(
    ("leading", "held"), [((True, True), True), ((True, False), False), ((False, True), False), ((), True)]
)
def test_a_write_is_ours_to_make_while_every_lease_is_held(leading: tuple[bool, ...], held: bool) -> None:
    electors: Any = {f"l{at}": cast(Any, SimpleNamespace(is_leader=each)) for at, each in enumerate(leading)}
    assert Leases(electors, identity="me").held is held
