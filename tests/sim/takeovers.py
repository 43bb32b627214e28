"""Whether who holds the lease works, while a kind of objects cannot be listed.

L14 a leader that lost the right to list a kind which safety can do without decides on pods all the same, or gives the
    lease back: nobody holds it for long and does nothing
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.loop import SimTask

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

#: Without a list of these nobody can decide, and who leads gives the lease back.
VITAL = ("pods", "nodes", "resourceclaims")
#: Seconds of leading after which a process works: its lists of what is vital may take 30.
_WORKS_WITHIN = 40.0
#: Seconds for which it waits for the answer to a list.
LIST_TIMEOUT = 60.0
_EVERY = 2.0


async def watch(world: World, kind: str, until: float) -> None:
    """Judge all processes while `kind` cannot be listed.

    Nobody is held to have given the lease back who waits for the answer to a list of what is vital, be it late or lost,
    or has waited for it until less than 40 s ago: a list that succeeds may take any time up to its timeout, and one
    that was under way when the process began to lead comes before the one that it needs.
    """
    #: Identity -> since when it has led without a break.
    since: dict[str, float] = {}
    stopped = {process.name: world.stopped_for(process.name) for process in world.processes}
    while kind not in VITAL and (now := world.loop.time()) < until:
        for process in world.processes:
            if not process.scheduler or not process.elects or not process.leads() or process.is_ending:
                since.pop(process.identity, None)
                continue
            led = now - max(since.setdefault(process.identity, now), process.vital_list_ends)
            if led < _WORKS_WITHIN or world.stopped_for(process.name) != stopped[process.name]:
                continue
            world.safety.checked["L14"] += 1
            if not _works(world, process):
                world.safety.violated(
                    "L14", f"{process.identity} has led for {led:.0f} s and decides nothing"
                )
        await asyncio.sleep(_EVERY)


def _works(world: World, process: Process) -> bool:
    return any(
        getattr(task.get_coro(), "__qualname__", "") == "WorkerPool.run"
        and isinstance(task, SimTask)
        and task.process == process.name
        for task in asyncio.all_tasks(world.loop)
    )
