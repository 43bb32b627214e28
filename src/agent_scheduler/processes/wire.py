"""What supervisor and children say to one another, and how: MessagePack behind its length, over a socket pair.

Both ends are one release, started by one command, so there is no version to agree on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent_scheduler.engine.shards.homes import Homes
from agent_scheduler.fastpath.neighbours import Ending


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all."""


# ---- to a child


class Hello(Message, frozen=True):
    """The first word: who it is, and by what configuration it works, as the text of a file."""

    number: int
    identity: str
    configuration: str


class Lead(Message, frozen=True):
    """It may write until then, on `kube.lease.boottime`. Answered by `Alive`."""

    until: float


class Begin(Message, frozen=True):
    """Be ready to schedule; `renew`: take the picture anew before, as others led until now. Answered by `Ready`."""

    renew: bool


class Split(Message, frozen=True):
    """Whose the pods are from now on; see `Homes`."""

    slots: tuple[int, ...]

    def homes(self) -> Homes:
        return Homes(self.slots)


class Share(Message, frozen=True):
    """Changes of the NodeShard's nodes that the scheduler may use, and why there are none."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    unready: str


class Claims(Message, frozen=True):
    """Changes of the nodes to which the scheduler's NodeShard has a claim; see `shards.coordinator.Side.hold`."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


class Hold(Message, frozen=True):
    """Use these nodes from now on; `catch_up`: once all is known that was bound there before, at `version` or later."""

    nodes: tuple[str, ...]
    catch_up: bool
    version: str


class Leave(Message, frozen=True):
    """Decide on these nodes no more. Answered by `Left`, maybe in pieces."""

    nodes: tuple[str, ...]


class Lent(Message, frozen=True):
    """Bind a pod of the process `home` to a node of yours. Answered by `Given`."""

    uid: str
    node: str
    home: int


class Returned(Message, frozen=True):
    """What became of a pod that the child has lent."""

    uid: str
    ending: Ending
    message: str


class Configure(Message, frozen=True):
    """Go on by another configuration."""

    configuration: str


class End(Message, frozen=True):
    """End in order."""


class Ask(Message, frozen=True):
    """For what a page of the server shows. Answered by `Answer` with the same `number`."""

    number: int
    page: str
    arguments: dict[str, Any] = {}


# ---- from a child


class Synced(Message, frozen=True):
    """Its picture of the cluster is whole."""


class Ready(Message, frozen=True):
    """It schedules as soon as it hears whose the pods are, on no nodes as yet."""


class Alive(Message, frozen=True):
    """Its event loop runs. `problem`: what keeps it from knowing the cluster as it is now."""

    problem: str = ""


class Left(Message, frozen=True):
    """Nothing of its own is under way to these nodes, and nothing will be."""

    nodes: tuple[str, ...]


class Lend(Message, frozen=True):
    """Have a pod bound to that node by the process it belongs to. Answered by `Returned`."""

    uid: str
    node: str


class Given(Message, frozen=True):
    """What became of a pod of the process `home`."""

    uid: str
    home: int
    ending: Ending
    message: str


class Answer(Message, frozen=True):
    """What was asked for, or, where it cannot be told yet, why."""

    number: int
    body: Any
    problem: str = ""


Order = Hello | Lead | Begin | Split | Claims | Share | Hold | Leave | Lent | Returned | Configure | End | Ask
Report = Synced | Ready | Alive | Left | Lend | Given | Answer

read_order = msgspec.msgpack.Decoder[Order](Order).decode
read_report = msgspec.msgpack.Decoder[Report](Report).decode
write = msgspec.msgpack.Encoder().encode
