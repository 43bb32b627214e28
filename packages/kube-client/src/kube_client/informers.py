"""Informers: the watches of several kinds, and the receivers of their changes.

Each kind has its own reflector, so changes of one kind are in order, and those of different kinds are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from kube_client.errors import FailureClass, RequestFailed
from kube_client.logs import LimitedLog, get_logger
from kube_client.recorder import ObjectReference
from kube_client.reflector import Collection, Reflector, Refused, WatchTimes
from kube_client.retry import Timing
from kube_client.transport import Transport, collection_at
from kube_client.waiting import RENEWAL_PATIENCE, InputsRefused, NotListed
from kube_client.watch_events import DELETED, Change, Decode, Identity, Object, ReadEvent

#: The time limit in seconds of a list of a kind that is not vital at a takeover, and the delay between later
#: attempts.
OTHERS_PATIENCE: Final = 15.0


#: How long a refusal may last at the start, and the delay between checks of it, in seconds.
REFUSED_PATIENCE: Final = 10.0
_REFUSED_LOOK: Final = 1.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """A watched kind: its path, its decoder, and the receivers of changes.

    The result of `read` has `metadata` with uid, name, namespace and resource_version; `read` raises
    msgspec.DecodeError.
    """

    name: str
    path: str
    read: Decode[Any]
    set: Callable[[Any], None]
    delete: Callable[[Any], None]
    query: dict[str, str] | None = None
    #: A faster decoder of its events, if there is one.
    read_event: ReadEvent[Any] | None = None
    #: Whether a server may lack it, which counts as no objects.
    optional: bool = False
    #: Whether decisions with an old view of it could conflict unnoticed, so that `renew` fails without a list of it.
    vital: bool = False
    #: Returns the stored object, if it is stored as decoded.
    known: Callable[[Any], Any] | None = None
    #: Returns the invalid part of an object that `read` accepts all the same; empty if all is valid.
    problem: Callable[[Any], str] | None = None
    #: Plugins of the program that need it; empty if all of it does.
    readers: tuple[str, ...] = ()
    #: See `Collection.portion`.
    portion: int | None = None

    @property
    def resource(self) -> str:
        """The name in roles: `queues.scheduling.volcano.sh`."""
        version, resource = collection_at(self.path)
        group = version.split("/")[2] if version.startswith("/apis/") else ""
        return f"{resource}.{group}" if group else resource

    def reference(self, namespace: str, name: str, uid: str) -> ObjectReference:
        """Return a reference to one of its objects, for events."""
        api_version = collection_at(self.path)[0].removeprefix("/apis/").removeprefix("/api/")
        return ObjectReference(self.name.partition(".")[0], namespace, name, uid, api_version)


class InformerObserver(Protocol):
    """Receives the state of the watches."""

    def watched(self, kind: str, what: str) -> None:
        """Report a count of a reflector; see `Reflector`."""

    def applies(self, kind: Kind, item: Object) -> bool:
        """Return whether a new or changed object may be applied. Called before each change, also before a deletion."""

    def received(self, kind: str, changes: Sequence[Change[Any]], began: float) -> None:
        """Report that a batch of changes was handled, from clock `began` until now."""

    def change_failed(self, kind: Kind, item: Object, error: Exception) -> None:
        """Report that a change could not be applied. The cache lacks it; later changes continue."""

    def unreadable(self, kind: Kind, who: Identity, problem: str) -> None:
        """Report a version of an object that cannot be read. The cache lacks it."""


class Informers:
    """Owns the reflectors."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        transport: Transport,
        times: WatchTimes,
        timing: Timing,
        observer: InformerObserver,
        burst: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`burst` is entered while changes that arrived together are applied."""
        self._burst = burst
        self._transport = transport
        self._times = times
        self._timing = timing
        self._observer = observer
        self._warnings = LimitedLog(_log, clock=timing.clock)
        #: Indexed by the kind's name; those of `also` come after the `_first` ones.
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._kinds: dict[str, Kind] = {}
        #: Kinds whose view is older than the last `renew`, with the reason.
        self._behind: dict[str, str] = {}
        self._catching_up: list[asyncio.Task[None]] = []
        #: The task group of `run`.
        self._tasks: asyncio.TaskGroup | None = None
        self.also(kinds)
        self._first = tuple(self._reflectors.values())

    def also(self, kinds: Iterable[Kind]) -> None:
        """Watch these kinds from now on, too, permanently.

        Their objects are missing until their first list; nothing waits.
        """
        for kind in kinds:
            if kind.name in self._reflectors:
                continue
            self._kinds[kind.name] = kind
            reflector = self._reflectors[kind.name] = Reflector(
                Collection(
                    path=kind.path,
                    decode=kind.read,
                    query=kind.query or {},
                    optional=kind.optional,
                    read_event=kind.read_event,
                    unreadable=partial(self._observer.unreadable, kind),
                    portion=kind.portion,
                ),
                partial(self._take_in, kind),
                transport=self._transport,
                times=self._times,
                timing=self._timing,
                count=partial(self._counted, kind),
            )
            if self._tasks is not None:
                self._tasks.create_task(reflector.run())

    def _counted(self, kind: Kind, what: str) -> None:
        self._observer.watched(kind.name, what)
        reflector = self._reflectors[kind.name]
        if what == "refused" and reflector.refused is not None and reflector not in self._first:
            # Decisions continue without it; for kinds from the start, `synced` reports it.
            _log.error("input refused", problem=_refusal(kind, reflector.refused))
        elif what == "failure" and (problem := reflector.problem) is not None:
            if reflector.refused is not None and reflector not in self._first:
                return
            # One line for all kinds that fail alike, such as without a connection.
            alike = str(problem.failure.status) if isinstance(problem, RequestFailed) else ""
            self._warnings.warning("list failed", alike, kind=kind.name, problem=str(problem))

    async def run(self) -> None:
        """Keep the caches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run())

    @property
    def problem(self) -> str:
        """The reason why kinds from the start are not listed: all refusals, or else the first other failure.

        Empty before the first response, and while the server only asks to wait.
        """
        if refusals := self._refusals():
            return refusals
        for name in self.missing:
            problem = self._reflectors[name].problem
            if problem is not None and not (isinstance(problem, RequestFailed) and problem.failure.throttles):
                return str(problem)
        return ""

    def _refusals(self) -> str:
        refused = ((name, self._reflectors[name].refused) for name in self.missing)
        return "; ".join(_refusal(self._kinds[name], each) for name, each in refused if each is not None)

    async def synced(self) -> None:
        """Return once everything that existed at the start has been seen. Raises InputsRefused for a lasting refusal.

        A shorter one comes from an API server that has just started and has not loaded its roles yet.
        """
        for reflector in self._first:
            while not reflector.synced.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REFUSED_LOOK):
                        await reflector.synced.wait()
                refused = (self._reflectors[name].refused for name in self.missing)
                if any(each is not None and each.last >= each.since + REFUSED_PATIENCE for each in refused):
                    raise InputsRefused(self._refusals())

    @property
    def absent(self) -> list[Kind]:
        """Kinds that the server does not serve although a plugin needs them."""
        return [kind for name, kind in self._kinds.items() if kind.readers and self._reflectors[name].is_absent]

    @property
    def is_synced(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> list[str]:
        """Kinds from the start that are not listed yet."""
        return [
            name
            for name, reflector in self._reflectors.items()
            if reflector in self._first and not reflector.synced.is_set()
        ]

    @property
    def stale(self) -> list[str]:
        """Kinds without news from the server for too long."""
        return [
            name for name, reflector in self._reflectors.items() if reflector.synced.is_set() and reflector.is_stale
        ]

    @property
    def watched(self) -> list[tuple[Kind, Reflector[Any]]]:
        """All kinds, except optional ones that could never be listed."""
        return [
            (self._kinds[name], reflector)
            for name, reflector in self._reflectors.items()
            if reflector.synced.is_set() or reflector in self._first
        ]

    @property
    def behind(self) -> Mapping[str, str]:
        """Kinds that the last `renew` could not list, with the reason."""
        return self._behind

    async def renew(self) -> None:
        """List everything again; when this returns, everything that was true at the call is known. Needs `run`.

        Kinds that are not vital may be behind then; they are retried in the background. Raises NotListed if a vital
        one cannot be listed.
        """
        for task in self._catching_up:
            task.cancel()
        self._catching_up.clear()
        # A kind that was never listed is not waited for: permission may be missing.
        kinds = [kind for kind, _ in self.watched]
        problems = await asyncio.gather(*(self._renewed(kind) for kind in kinds))
        failed = {kind.name: why for kind, why in zip(kinds, problems, strict=True) if why is not None}
        if missing := [f"{kind.name}: {failed[kind.name]}" for kind in kinds if kind.vital and kind.name in failed]:
            raise NotListed("; ".join(missing))
        self._behind = failed
        assert self._tasks is not None, "renewed while it runs"
        self._catching_up = []
        for name in failed:
            later = self._renew_later(name)
            try:
                self._catching_up.append(self._tasks.create_task(later))
            except RuntimeError:
                # The task group is shutting down.
                later.close()
                raise

    async def _renewed(self, kind: Kind) -> str | None:
        """List a kind again; return the reason if that fails."""
        reflector = self._reflectors[kind.name]
        try:
            if kind.vital:
                await reflector.relist(patience=RENEWAL_PATIENCE)
            else:
                async with asyncio.timeout(OTHERS_PATIENCE):
                    await reflector.relist(patience=OTHERS_PATIENCE)
        except NotListed as error:
            return str(error)
        except TimeoutError:
            return f"not listed within {OTHERS_PATIENCE:g} s"
        return None

    async def _renew_later(self, name: str) -> None:
        # Meanwhile the watch continues, which may work even if the list does not.
        while True:
            await self._timing.sleep(OTHERS_PATIENCE)
            try:
                await self._reflectors[name].relist(patience=0.0)
            except NotListed as error:
                self._behind[name] = str(error)
                continue
            del self._behind[name]
            return

    async def catch_up(self, kind: str, at_least: str = "") -> None:
        """Return once all objects of a kind that existed at the call have been seen. Needs `run`.

        `at_least` is a version of another kind that is known to be current or older.
        """
        await self._reflectors[kind].catch_up(at_least=at_least)

    def learn(self, kind: str, made: Object) -> bool:
        """Remember an object; see `CollectionView.learn`."""
        return self._reflectors[kind].view.learn(made)

    def written(self, kind: str, bodies: Iterable[bytes]) -> None:
        """Deliver objects from responses to writes of this process as the watch would, which may show them later."""
        view = self._reflectors[kind].view
        changes = [change for body in bodies if (change := view.written(body)) is not None]
        if changes:
            self._take_in(self._kinds[kind], changes)

    def read_again(self, kind: str) -> None:
        """Deliver all objects of this kind again, because they are decoded differently from now on."""
        self._reflectors[kind].redeliver()

    def _take_in(self, kind: Kind, changes: list[Change[Any]]) -> None:
        began = self._timing.clock()
        if len(changes) == 1:
            self._take_in_each(kind, changes)
        else:
            with self._burst():
                self._take_in_each(kind, changes)
        self._observer.received(kind.name, changes, began)

    def _take_in_each(self, kind: Kind, changes: list[Change[Any]]) -> None:
        for change in changes:
            try:
                applies = self._observer.applies(kind, change.object)
                if change.type is DELETED:
                    kind.delete(change.object)
                elif applies:
                    kind.set(change.object)
                    if kind.problem is not None and (problem := kind.problem(change.object)):
                        self._observer.watched(kind.name, "malformed")
                        key = key_of(change.object)
                        _log.warning("malformed object", kind=kind.name, key=key, error=problem)
            except Exception as error:
                self._observer.change_failed(kind, change.object, error)


def key_of(item: Object) -> str:
    """Return `namespace/name` of an object; for a cluster-scoped one its name."""
    metadata = item.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _refusal(kind: Kind, refused: Refused) -> str:
    failure = refused.failure
    if failure.kind is FailureClass.NOT_SERVED:
        lacking = f"needed: an API server that serves {kind.resource}"
    else:
        lacking = f"needed: the right to list and watch {kind.resource}, in a role of this process"
    who = f"plugin {', '.join(kind.readers)} reads" if kind.readers else "this process reads"
    return f"{who} {kind.name}, which is refused: {failure}; {lacking}"


def merged(kinds: Iterable[Kind]) -> list[Kind]:
    """Combine the kinds of each name into one, which calls all handlers in order."""
    found: dict[str, Kind] = {}
    for kind in kinds:
        known = found.get(kind.name)
        found[kind.name] = kind if known is None else _both(known, kind)
    return list(found.values())


def _both(first: Kind, second: Kind) -> Kind:
    if (first.path, first.query, first.optional) != (second.path, second.query, second.optional):
        raise ValueError(f"{first.name} is watched in two ways: {first.path} and {second.path}")

    def put(each: Any) -> None:
        # An error of one receiver does not concern the other.
        try:
            first.set(each)
        finally:
            second.set(each)

    def delete(each: Any) -> None:
        try:
            first.delete(each)
        finally:
            second.delete(each)

    return replace(first, set=put, delete=delete, vital=first.vital or second.vital)
