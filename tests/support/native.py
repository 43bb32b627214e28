"""Gangs of Kubernetes' own API, whose members use the batch scheduler."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from agent_scheduler.objects.batch import NATIVE_API
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.installation import Installation, installed

GROUPS = f"{NATIVE_API}/namespaces/default/podgroups"


class NativeGangs(Installation):
    async def native_gang(self, name: str, members: int, *, minimum: int = 0, cpu: str = "1") -> None:
        policy = {"gang": {"minCount": minimum or members}}
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
        await self.add(GROUPS, body)
        for number in range(members):
            await self.native_member(f"{name}-{number}", name, cpu=cpu)

    async def native_member(self, name: str, group: str, *, cpu: str = "1") -> None:
        await self.add_pod(name, scheduler="volcano", cpu=cpu, schedulingGroup={"podGroupName": group})

    async def said(self, group: str) -> tuple[str, str, str] | None:
        """Return status, reason and message of PodGroupScheduled."""
        found = await self.get(f"{GROUPS}/{group}")
        for each in (found.get("status") or {}).get("conditions") or ():
            if each["type"] == "PodGroupScheduled":
                return each["status"], each["reason"], each.get("message", "")
        return None

    async def says_of_group(self, group: str, *condition: str) -> bool:
        return await self.said(group) == condition

    @property
    def remembered(self) -> int:
        """Return the number of groups with a recorded condition."""
        assert self.runtime.batch is not None
        return len(self.runtime.batch._messages._said.groups._last)


def native_gangs() -> AbstractAsyncContextManager[NativeGangs]:
    return installed(made=NativeGangs, queue="default", kinds=(*BUILTIN, *ALPHA))
