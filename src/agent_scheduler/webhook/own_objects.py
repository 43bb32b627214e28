"""Watches the objects that the webhook writes, each by its name: its Secret, and who is to trust what that holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from agent_scheduler.cluster.informers import InformerObserver, Informers
from agent_scheduler.cluster.kinds import Kind
from agent_scheduler.kube.reflector import WatchTimes
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.objects.wire import Metadata, Wire

_KINDS: Final = {
    "secrets": "Secret",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}


class _Object(Wire, frozen=True):
    """That it has changed is all that is asked: who looks reads it."""

    metadata: Metadata = Metadata()


_read = msgspec.json.Decoder(_Object).decode


class OwnObjects:
    """Run `watch`. `paths`: of the objects. `changed` is told of each that is made, changed or deleted."""

    def __init__(
        self,
        transport: Transport,
        *,
        paths: Sequence[str],
        changed: Callable[[], None],
        observer: InformerObserver,
        timing: Timing,
    ) -> None:
        self._informers = Informers(
            [_kind(path, changed) for path in paths],
            transport=transport,
            times=WatchTimes(),
            timing=timing,
            observer=observer,
        )

    async def watch(self) -> None:
        """Tell of changes until cancelled."""
        await self._informers.run()


def _kind(path: str, changed: Callable[[], None]) -> Kind:
    collection, _, name = path.rpartition("/")

    def tell(_object: _Object) -> None:
        changed()

    # Roles that name the object allow no other list or watch.
    query = {"fieldSelector": f"metadata.name={name}"}
    return Kind(_KINDS[collection.rpartition("/")[2]], collection, _read, tell, tell, query=query)
