"""What a session does, one action after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .allocate import allocate
from .backfill import backfill
from .enqueue import enqueue

if TYPE_CHECKING:
    from ..session import Session

#: By their names in a configuration. Each is a generator that pauses between small steps.
ACTIONS: Final[Mapping[str, Callable[[Session], Iterator[None]]]] = MappingProxyType(
    {"enqueue": enqueue, "allocate": allocate, "backfill": backfill}
)
