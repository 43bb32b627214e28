"""Generates resource claims of pods from templates, one for each entry that names a template.

Existing claims are found by owner and annotation, so that an interruption before the pod's status was updated never
leads to a second claim.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from . import nesting
from .controllers import reference_to
from .handlers import Api
from .pod_claims import CLAIMS, Use
from .resource import Object
from .store import Record
from .templates import NAME, Hole, Template
from .writing import free_name

TEMPLATES = ("resource.k8s.io", "resourceclaimtemplates")
#: Annotation of a generated claim: the entry in the pod's `spec.resourceClaims`.
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
#: The maximal length of a generated name without its random suffix.
_BASE = 57
_MOST_LIKE = 1024


class NoTemplate(Exception):
    """The template with this name does not exist (yet)."""


class _Like(NamedTuple):
    """A claim without the parts that differ between pods.

    `versions` are those of the template and the namespace, on which admission and content of a claim depend.
    """

    versions: tuple[int, int]
    claim: Template


_METADATA = ("metadata",)
_OWNER = ("metadata", "ownerReferences", 0)
#: The parts that differ, in the order of `ClaimMaker._make`.
_HOLES = (
    NAME,
    Hole((*_METADATA, "generateName")),
    Hole((*_METADATA, "creationTimestamp")),
    Hole((*_OWNER, "name")),
    Hole((*_OWNER, "uid")),
)


class ClaimMaker:
    """Creates claims on one server.

    The first claim of a template passes through the whole API; later ones are copies, because a burst of pods needs
    thousands.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._claims = api.registry.stored(CLAIMS)
        self._templates = api.registry.stored(TEMPLATES).table
        #: The common part of claims by template key and entry. A cache.
        self._like: dict[tuple[str, str], _Like] = {}

    def own(self, pod: Record, name: str) -> Record | None:
        """Return the claim with this name if the pod owns it."""
        claim = self._claims.table.get(pod.namespace, name)
        return claim if claim is not None and pod.uid in claim.owners else None

    def name_for(self, pod: Record, use: Use) -> str:
        """Return the name of an entry's claim, which is created if it is missing.

        Raises `NoTemplate`, or `ApiError` if the server rejects the claim.
        """
        return self._made_before(pod, use.entry) or self._make(pod, use)

    def _made_before(self, pod: Record, entry: str) -> str:
        for table, key in sorted(self._api.store.dependents.get(pod.uid, ())):
            if table != CLAIMS:
                continue
            claim = self._claims.table.records[key]
            annotations = self._claims.stored.decode(claim.data)["metadata"].get("annotations") or {}
            if annotations.get(POD_CLAIM_NAME) == entry:
                return claim.name
        return ""

    def _make(self, pod: Record, use: Use) -> str:
        key = f"{pod.namespace}/{use.template}"
        template = self._templates.records.get(key)
        namespace = self._api.registry.namespace(pod.namespace)
        if template is None:
            raise NoTemplate(use.template)
        base, cut = _base_name(pod.name, use.entry)
        like = self._like.get((key, use.entry))
        if like is None or namespace is None or cut or like.versions != (template.rv, namespace.rv):
            return self._make_first(pod, use, base, template, namespace)
        registry, store = self._api.registry, self._api.store
        name = free_name(registry, self._claims, {"generateName": base, "namespace": pod.namespace})
        texts = (name, base, registry.now(), pod.name, pod.uid)
        record = like.claim.fill(store.rv + 1, pod.namespace, store.uid(), texts, owners=(pod.uid,))
        store.put(CLAIMS, record, None)
        return name

    def _make_first(self, pod: Record, use: Use, base: str, template: Record, namespace: Record | None) -> str:
        """Create a claim through the API. Later copies differ only in parts that do not affect admission."""
        given = nesting.loads(template.data)["spec"]
        wanted: Object = given.get("metadata") or {}
        kept: Object = {"annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: use.entry}}
        if wanted.get("labels"):
            kept["labels"] = wanted["labels"]
        metadata = {
            "generateName": base,
            "namespace": pod.namespace,
            "ownerReferences": [reference_to(pod, "v1", "Pod")],
            **kept,
        }
        created = self._api.create(CLAIMS, {"metadata": metadata, "spec": given["spec"]})
        assert created is not None, "a generated name is free"
        name: str = created["metadata"]["name"]
        if namespace is not None:
            if len(self._like) >= _MOST_LIKE:
                self._like.clear()
            record = self._claims.table.records[f"{pod.namespace}/{name}"]
            with suppress(ValueError):
                claim = Template(record, self._claims, _HOLES)
                self._like[template.key, use.entry] = _Like((template.rv, namespace.rv), claim)
        return name


def _base_name(pod: str, entry: str) -> tuple[str, bool]:
    """Return the prefix of a generated claim's name, and whether it was truncated.

    Long names are truncated in proportion, so that parts of both remain.
    """
    whole = f"{pod}-{entry}-"
    if len(whole) <= _BASE:
        return whole, False
    return f"{pod[: len(pod) * _BASE // len(whole)]}-{entry[: len(entry) * _BASE // len(whole)]}", True
