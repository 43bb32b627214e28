"""Creates the service account `default` and the ConfigMap `kube-root-ca.crt` of every namespace.

Follows pkg/controller/serviceaccount and pkg/controller/certificates/rootcacertpublisher: both come back after they
were deleted, and the ConfigMap also after it was changed. Without TLS, its certificate is empty.
"""

from __future__ import annotations

from abc import abstractmethod
from math import inf

from .controllers import Controller, WorkQueue
from .handlers import Api
from .registry import NAMESPACES
from .resource import Object
from .store import Event
from .tokens import SERVICE_ACCOUNTS

DEFAULT = "default"
ROOT_CA = "kube-root-ca.crt"
_MAPS = ("", "configmaps")
_ABOUT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class _InEachNamespace(Controller):
    """Creates one object in every namespace."""

    #: Group and plural of the object, and its name.
    kind: tuple[str, str]
    name: str

    def __init__(self, api: Api) -> None:
        self.api = api
        #: Namespaces that may lack their object, in order of arrival.
        self._noted = WorkQueue[str]()
        namespaces = api.registry.stored(NAMESPACES).table
        self._noted.extend(record.name for record in namespaces.scan(""))
        namespaces.subscribers.append(self._namespace_changed)
        api.registry.stored(self.kind).table.subscribers.append(self._object_changed)

    def _namespace_changed(self, event: Event) -> None:
        if event.type == "ADDED":
            self._note(event.record.name)

    def _object_changed(self, event: Event) -> None:
        if event.record.name == self.name and event.type != "ADDED":
            self._note(event.record.namespace)

    def _note(self, namespace: str) -> None:
        self._noted.add(namespace)
        self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`."""
        self._noted.work(most, self._see)
        return -inf if self._noted else None

    def _see(self, namespace: str) -> None:
        registry = self.api.registry
        if registry.namespace(namespace) is None or namespace in registry.terminating:
            return
        served, wanted = registry.stored(self.kind), self.contents()
        record = served.table.get(namespace, self.name)
        if record is None:
            metadata = {**wanted.get("metadata", {}), "name": self.name, "namespace": namespace}
            self.api.create(self.kind, {**wanted, "metadata": metadata})
            return
        obj = served.stored.decode(record.data)
        if any(obj.get(field) != value for field, value in wanted.items() if field != "metadata"):
            registry.store.replace(self.kind, record, {**obj, **wanted, "metadata": obj["metadata"]})

    @abstractmethod
    def contents(self) -> Object:
        """Return the object without its name and namespace."""


class ServiceAccounts(_InEachNamespace):
    """The controller of default service accounts."""

    kind, name = SERVICE_ACCOUNTS, DEFAULT

    def contents(self) -> Object:
        return {}


class RootCertificates(_InEachNamespace):
    """The publisher of the server's CA certificate."""

    kind, name = _MAPS, ROOT_CA

    def contents(self) -> Object:
        annotations = {"kubernetes.io/description": _ABOUT}
        return {"metadata": {"annotations": annotations}, "data": {"ca.crt": self.api.authority.decode()}}
