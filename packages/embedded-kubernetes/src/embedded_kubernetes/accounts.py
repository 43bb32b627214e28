"""Creates the `default` service account of every namespace, also after it was deleted.

Follows pkg/controller/serviceaccount, so that `kubectl create token default` and role bindings work. The ConfigMap
kube-root-ca.crt is not created, because no container here could mount it.
"""

from __future__ import annotations

from math import inf

from .controllers import Controller, WorkQueue
from .handlers import Api
from .registry import NAMESPACES
from .store import Event
from .tokens import SERVICE_ACCOUNTS

DEFAULT = "default"


class ServiceAccounts(Controller):
    """The controller of default service accounts."""

    def __init__(self, api: Api) -> None:
        self._api = api
        #: Namespaces that may lack their account, in order of arrival.
        self._noted = WorkQueue[str]()
        namespaces = api.registry.stored(NAMESPACES).table
        self._noted.extend(record.name for record in namespaces.scan(""))
        namespaces.subscribers.append(self._namespace_changed)
        api.registry.stored(SERVICE_ACCOUNTS).table.subscribers.append(self._account_changed)

    def _namespace_changed(self, event: Event) -> None:
        if event.type == "ADDED":
            self._note(event.record.name)

    def _account_changed(self, event: Event) -> None:
        if event.type == "DELETED" and event.record.name == DEFAULT:
            self._note(event.record.namespace)

    def _note(self, namespace: str) -> None:
        self._noted.add(namespace)
        self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        self._noted.work(most, self._see)
        return -inf if self._noted else None

    def _see(self, namespace: str) -> None:
        registry = self._api.registry
        if registry.namespace(namespace) is not None and namespace not in registry.terminating:
            # `create` does nothing if the account exists.
            self._api.create(SERVICE_ACCOUNTS, {"metadata": {"name": DEFAULT, "namespace": namespace}})
