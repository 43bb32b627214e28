"""The kinds of gangs and queues in a world's cluster, and who keeps queues open where no controller does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from embedded_kubernetes.store import Record
from tests.support.places import CONFIG

from .gang_load import API, GROUPS_OF_DEFAULT, NATIVE, Gangs

if TYPE_CHECKING:
    from .world import World

Json = dict[str, Any]

QUEUES, GROUPS = ("scheduling.volcano.sh", "queues"), ("scheduling.volcano.sh", "podgroups")
NATIVE_GROUPS = ("scheduling.k8s.io", "podgroups")
PODS, JOBS = ("", "pods"), ("batch.volcano.sh", "jobs")
MERGE = "application/merge-patch+json"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITIONS = CONFIG / "crd"


#: Of queues, groups, what is asked of these, and of Jobs.
_GANGS = ("scheduling.volcano.sh_queues", "scheduling.volcano.sh_podgroups", "bus.volcano.sh_commands")
_JOBS = ("batch.volcano.sh_jobs",)


@cache
def _definitions(names: tuple[str, ...]) -> list[Json]:
    return [yaml.safe_load((_DEFINITIONS / f"{name}.yaml").read_text()) for name in names]


class GangCluster:
    """Made with its world. What it says is read from the store."""

    def __init__(self, world: World, shape: Gangs) -> None:
        self._world = world
        self.shape = shape
        for definition in _definitions((*_GANGS, *_JOBS) if world.shape.jobs is not None else _GANGS):
            world.call("POST", _CRDS, definition)

    def install(self) -> None:
        """Make the first queues."""
        for body in self.shape.queues:
            self.make_queue(body)

    def make_queue(self, body: Json) -> None:
        """Also where there is one. Its state is what `body` says, where nobody else says it."""
        self._world.call(
            "POST", f"{API}/queues", {key: each for key, each in body.items() if key != "status"}
        )
        self.set_state(body["metadata"]["name"], body["status"]["state"])

    def set_state(self, name: str, state: str) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}/status", {"status": {"state": state}}, MERGE)

    def patch_queue(self, name: str, spec: Json) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}", {"spec": spec}, MERGE)

    def patch_group(self, name: str, body: Json) -> None:
        self._world.call("PATCH", f"{GROUPS_OF_DEFAULT}/{name}", body, MERGE)

    # -- what is there

    def queues(self) -> dict[str, Json]:
        return {record.name: orjson.loads(record.data) for record in self._records(QUEUES)}

    def groups(self) -> dict[str, Json]:
        """By name: all are in one namespace."""
        return {record.name: orjson.loads(record.data) for record in self._records(GROUPS)}

    def native_groups(self) -> dict[str, Json]:
        """By name, with `NATIVE` before it, where the API server has any."""
        return {
            f"{NATIVE}{record.name}": orjson.loads(record.data) for record in self._records(NATIVE_GROUPS)
        }

    def pods(self) -> list[Json]:
        return [orjson.loads(record.data) for record in self._records(PODS)]

    def jobs(self) -> list[Json]:
        """Where there are any."""
        return [orjson.loads(record.data) for record in self._records(JOBS)]

    def _records(self, kind: tuple[str, str]) -> Iterator[Record]:
        table = self._world.store.tables.get(kind)
        return iter([] if table is None else list(table.scan("")))
