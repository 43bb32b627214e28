"""Watches the objects that the webhook writes, each by name: its Secret and its configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from agent_scheduler.objects.wire import Metadata
from apimachinery.wire import Wire
from kube_client.informers import InformerObserver, Informers, Kind
from kube_client.reflector import WatchTimes
from kube_client.retry import Timing
from kube_client.transport import Transport

_KINDS: Final = {
    "secrets": "Secret",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}


class _Object(Wire, frozen=True):
    """An object without content: `changed` reads it when needed."""

    metadata: Metadata = Metadata()


_read = msgspec.json.Decoder(_Object).decode


class OwnObjects:
    """Watches the objects at `paths`. Run `watch`. `changed` is called after each creation, change and deletion."""

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
        """Report changes until cancelled."""
        await self._informers.run()


def _kind(path: str, changed: Callable[[], None]) -> Kind:
    collection, _, name = path.rpartition("/")

    def tell(_object: _Object) -> None:
        changed()

    # A role that names the object does not allow other lists and watches.
    query = {"fieldSelector": f"metadata.name={name}"}
    return Kind(_KINDS[collection.rpartition("/")[2]], collection, _read, tell, tell, query=query)
