"""The self-check: compares a scheduler's state with a new list of the cluster.

    list every kind ─> compare ─> read different objects again a little later ─> same difference: reported

Watches lag behind and objects change while they are listed, so a difference is not reported at once: when read again,
the object must be the same on the API server and have the same difference here. An object that has changed in between
is checked again, a few times, and then reported as unsettled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine import selfcheck
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.selfcheck import Difference
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.errors import FailureClass, RequestFailed
from kube_client.informers import Informers, Kind
from kube_client.paging import PAGE, collect
from kube_client.reflector import Reflector
from kube_client.watch_events import Object, identify, is_older

#: Seconds until different objects are read again; a healthy watch has delivered the change by then.
SETTLES: Final = 3.0
#: How often an object that keeps changing is read again.
_ROUNDS: Final = 4
#: Up to this number of objects of a kind are read again one by one; for more, the whole kind is listed.
_ONE_BY_ONE: Final = 20
#: Seconds per request.
_REQUEST_TIMEOUT: Final = 30.0
#: Per profile, the number of pod classes, those of the latest pods, whose cached results are compared. Each costs as
#: much as the first pod of a class.
VIEWS_CHECKED: Final = 16
#: Objects that are compared before other tasks run.
_PORTION: Final = 200


class Report(msgspec.Struct, frozen=True):
    """The result. `checked` has the number of objects per kind, and of pod classes (`ClassView`).

    `unsettled` has objects that changed during every comparison. `not_listed` has unlisted kinds with the reason.
    """

    differences: tuple[Difference, ...]
    unsettled: tuple[str, ...]
    not_listed: Mapping[str, str]
    checked: Mapping[str, int]


class _Seen(NamedTuple):
    """An object with a difference. Equal if the object on the API server and the difference are the same."""

    name: str
    fresh: str
    problems: tuple[tuple[str, str], ...]


#: Kind and UID.
_Which = tuple[str, str]


class SelfCheck:
    """The self-check. Concurrent calls run one after the other."""

    def __init__(
        self,
        runtime: Runtime,
        state: SharedState,
        *,
        informers: Informers,
        binder: Binder,
        views: Callable[[], Iterable[ClassViews]],
    ) -> None:
        """Create the self-check; `views` returns the workers' current ones."""
        self._informers = informers
        self._cluster = state.cluster
        self._snapshot = state.snapshot
        self._binder = binder
        self._views = views
        self._transport = runtime.transport
        self._timing = runtime.timing
        self._turn = asyncio.Lock()

    async def run(self) -> Report:
        """Run the check. Never raises for network and server failures."""
        async with self._turn:
            return await self._run()

    async def _run(self) -> Report:
        not_listed: dict[str, str] = {}
        checked: dict[str, int] = {}
        open_: dict[_Which, _Seen] = {}
        for kind, reflector in self._informers.watched:
            try:
                fresh = await self._listed(kind)
            except RequestFailed as error:
                not_listed[kind.name] = str(error)
                continue
            checked[kind.name] = len(fresh)
            async for uid, seen in self._compared(kind, reflector, fresh, {*fresh, *reflector.uids}):
                open_[kind.name, uid] = seen
        differences, unsettled = await self._settled(open_, not_listed)
        differences += await self._of_books(checked)
        return Report(tuple(sorted(set(differences))), tuple(sorted(unsettled)), not_listed, checked)

    # ---- objects

    async def _listed(self, kind: Kind, name: str = "", namespace: str = "") -> dict[str, Any]:
        """List by UID, optionally only objects of one name. Raises RequestFailed."""
        path, query = kind.path, dict(kind.query or {})
        if name:
            selectors = [query["fieldSelector"]] if "fieldSelector" in query else []
            query["fieldSelector"] = ",".join([*selectors, f"metadata.name={name}"])
        try:
            _, objects, _ = await collect(
                self._transport,
                path,
                kind.read,
                query=query,
                page_size=PAGE,
                timeout=_REQUEST_TIMEOUT,
                malformed=lambda raw, _error: identify(raw).uid,
            )
        except RequestFailed as error:
            if kind.optional and error.failure.kind is FailureClass.NOT_SERVED:
                return {}
            raise
        return {uid: each for uid, each in objects.items() if not name or each.metadata.namespace == namespace}

    async def _compared(
        self, kind: Kind, reflector: Reflector[Any], fresh: Mapping[str, Any], uids: Iterable[str]
    ) -> AsyncIterator[tuple[str, _Seen]]:
        """Yield the objects of `uids` that differ."""
        for number, uid in enumerate(uids, start=1):
            problems = tuple(self._problems(kind, reflector, uid, fresh.get(uid)))
            if problems:
                object_ = fresh.get(uid) or reflector.get(uid)
                yield uid, _Seen(_name(object_), _version(fresh.get(uid)), problems)
            if number % _PORTION == 0:
                await asyncio.sleep(0)

    def _problems(self, kind: Kind, reflector: Reflector[Any], uid: str, fresh: Any) -> Iterator[tuple[str, str]]:
        known = reflector.get(uid)
        if fresh is None and known is not None:
            yield "informer", "has it, and it is gone"
        elif fresh is not None and known is None:
            yield "informer", "does not have it"
        elif fresh is not None and is_older(_version(known), _version(fresh)):
            yield "informer", f"has version {_version(known)}, the API server {_version(fresh)}"
        elif fresh is not None and kind.known is not None and not _alike(kind.known(fresh), fresh):
            yield "catalog", "has a different version of it than the watch"
        if kind.name == "Pod":
            yield from selfcheck.of_pod(
                uid,
                None if isinstance(fresh, PodInfo) and fresh.finished else fresh,
                is_ours=isinstance(fresh, PodInfo) and self._cluster.is_ours(fresh),
                ledger=self._cluster.ledger,
                queue=None if isinstance(fresh, PodInfo) and self._cluster.is_beside(fresh) else self._cluster.queue,
            )

    async def _settled(
        self, open_: dict[_Which, _Seen], not_listed: dict[str, str]
    ) -> tuple[list[Difference], list[str]]:
        """Read again, and return confirmed differences and unsettled objects."""
        differences: list[Difference] = []
        for _ in range(_ROUNDS):
            if not open_:
                break
            await self._timing.sleep(SETTLES)
            again: dict[_Which, _Seen] = {}
            for kind, reflector in self._informers.watched:
                before = {uid: seen for (name, uid), seen in open_.items() if name == kind.name}
                if not before or kind.name in not_listed:
                    continue
                try:
                    fresh = await self._read_again(kind, before)
                except RequestFailed as error:
                    not_listed[kind.name] = str(error)
                    continue
                async for uid, seen in self._compared(kind, reflector, fresh, before):
                    if seen == before[uid]:
                        differences += (
                            Difference(where, kind.name, seen.name, problem) for where, problem in seen.problems
                        )
                    else:
                        again[kind.name, uid] = seen
            open_ = again
        return differences, [f"{kind} {seen.name}" for (kind, _), seen in open_.items()]

    async def _read_again(self, kind: Kind, before: Mapping[str, _Seen]) -> dict[str, Any]:
        if len(before) > _ONE_BY_ONE:
            return await self._listed(kind)
        fresh: dict[str, Any] = {}
        for seen in before.values():
            namespace, _, name = seen.name.rpartition("/")
            fresh |= await self._listed(kind, name, namespace)
        return fresh

    # ---- books

    async def _of_books(self, checked: dict[str, int]) -> list[Difference]:
        cluster = self._cluster
        found = list(
            selfcheck.of_books(cluster.ledger, cluster.queue, self._snapshot, cluster.catalogue, cluster.devices)
        )
        found += selfcheck.of_requests(cluster.ledger, cluster.queue, self._binder.in_flight)
        checked["ClassView"] = 0
        for views in self._views():
            found += await self._of_views(views, checked)
        return found

    async def _of_views(self, views: ClassViews, checked: dict[str, int]) -> list[Difference]:
        """Compare the cached results of current classes; views of former classes are unused."""
        found: list[Difference] = []
        seen: set[PodClass] = set()
        for number, uid in enumerate(reversed(list(self._cluster.pods)), start=1):
            if number % _PORTION == 0:
                await asyncio.sleep(0)
            pod = self._cluster.pods.get(uid)
            if pod is None or pod.scheduler_name != views.profile.scheduler_name:
                continue
            cls = self._cluster.handle.class_of(pod)
            if cls in seen or cls not in views:
                continue
            self._snapshot.refresh()
            found += selfcheck.of_view(views, cls, self._snapshot)
            seen.add(cls)
            if len(seen) == VIEWS_CHECKED:
                break
            await asyncio.sleep(0)
        checked["ClassView"] += len(seen)
        return found


def _alike(book: Any, fresh: Any) -> bool:
    """Return whether no decision could distinguish them, or the stored one is newer."""
    if book is None:
        return False
    if _version(book) == _version(fresh) or is_older(_version(fresh), _version(book)):
        return True
    return bool(book == msgspec.structs.replace(fresh, resource_version=_version(book)))


def _name(object_: Object | None) -> str:
    if object_ is None:
        return ""
    metadata = object_.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _version(object_: Object | None) -> str:
    return "" if object_ is None else object_.metadata.resource_version
