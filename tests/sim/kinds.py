"""Classes of a world that its parts use only in annotations, because they depend on one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evictions import Claim as Claim
    from .gang_safety import GangSafety as GangSafety
    from .nemesis import Nemesis as Nemesis
    from .network import SimTransport as SimTransport
    from .processes import Controller as Controller
    from .processes import Process as Process
    from .scenarios import Shape as Shape
    from .wire import Wire as Wire
    from .world import World as World
else:
    Claim = GangSafety = Nemesis = SimTransport = Controller = Process = Shape = Wire = World = Any
