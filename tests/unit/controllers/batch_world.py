"""Where the replay of recordings finds its world."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.support.controllers import BatchWorld as Controllers
from tests.support.controllers import batch_world as controllers
from tests.support.embedded import MERGE as MERGE


class BatchWorld(Controllers):
    @property
    def cluster(self) -> BatchWorld:
        return self


def batch_world() -> AbstractAsyncContextManager[BatchWorld]:
    return controllers(BatchWorld)
