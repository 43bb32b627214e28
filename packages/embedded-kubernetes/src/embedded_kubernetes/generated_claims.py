"""Claims that are made for pods from templates: one for each entry that names a template, and never a second one.

A claim that was made and that its pod was not told of (the process was stopped in between) is found again by its owner
and its annotation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import orjson

from .controllers import reference_to
from .handlers import Api
from .pod_claims import CLAIMS, Use
from .resource import Object
from .store import Record
from .templates import NAME, Hole, Template
from .writing import free_name

TEMPLATES = ("resource.k8s.io", "resourceclaimtemplates")
#: Annotation of a generated claim: the entry of the pod's `spec.resourceClaims` that it was made for.
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
#: How long a generated name may be before its random letters.
_BASE = 57
_MOST_LIKE = 1024


class NoTemplate(Exception):
    """The template of this name is not there (yet)."""


class _Like(NamedTuple):
    """A claim that the API made, but for what differs from pod to pod. `versions` are those of the template and of the
    namespace, which together decide whether a claim is made, and what it says."""

    versions: tuple[int, int]
    claim: Template


_METADATA = ("metadata",)
_OWNER = ("metadata", "ownerReferences", 0)
#: What differs, in the order of `ClaimMaker._make`.
_HOLES = (
    NAME,
    Hole((*_METADATA, "generateName")),
    Hole((*_METADATA, "creationTimestamp")),
    Hole((*_OWNER, "name")),
    Hole((*_OWNER, "uid")),
)


class ClaimMaker:
    """Makes claims in one server. The first from a template goes by all the rules of its API, those like it are copies:
    a burst of pods has thousands."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._claims = api.registry.stored(CLAIMS)
        self._templates = api.registry.stored(TEMPLATES).table
        #: (Key of a template, entry) -> what the last claim made from it has in common with the next. A cache.
        self._like: dict[tuple[str, str], _Like] = {}

    def own(self, pod: Record, name: str) -> Record | None:
        """The claim of this name, if it belongs to the pod."""
        claim = self._claims.table.get(pod.namespace, name)
        return claim if claim is not None and pod.uid in claim.owners else None

    def name_for(self, pod: Record, use: Use) -> str:
        """The name of the claim for an entry, which is made if there is none.

        Raises `NoTemplate`, or `ApiError` if the server refuses the claim.
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

    def _make_first(
        self, pod: Record, use: Use, base: str, template: Record, namespace: Record | None
    ) -> str:
        """By all the rules of the API. Those that follow it differ in nothing that these judge."""
        given = orjson.loads(template.data)["spec"]
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
    """What a generated claim's name begins with. Long names are cut, and then true, so that something of both stays."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _BASE:
        return whole, False
    return f"{pod[: len(pod) * _BASE // len(whole)]}-{entry[: len(entry) * _BASE // len(whole)]}", True
