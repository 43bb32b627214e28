"""Claims that are made for pods from templates: one for each entry that names a template, and never a second one.

A claim that was made and that its pod was not told of (the process was stopped in between) is found again by its owner
and its annotation.
"""

from __future__ import annotations

from .handlers import Api
from .pod_claims import CLAIMS, Use
from .resource import Object
from .store import Record

TEMPLATES = ("resource.k8s.io", "resourceclaimtemplates")
#: Annotation of a generated claim: the entry of the pod's `spec.resourceClaims` that it was made for.
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
#: How long a generated name may be before its random letters.
_BASE = 57


class NoTemplate(Exception):
    """The template of this name is not there (yet)."""


class ClaimMaker:
    """Makes claims in one server, by all the rules of its API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._claims = api.registry.stored(CLAIMS)

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
        template = self._api.registry.object(TEMPLATES, f"{pod.namespace}/{use.template}")
        if template is None:
            raise NoTemplate(use.template)
        given: Object = template["spec"].get("metadata") or {}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "uid": pod.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata: Object = {
            "generateName": _base_name(pod.name, use.entry),
            "namespace": pod.namespace,
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: use.entry},
            "ownerReferences": [owner],
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        created = self._api.create(CLAIMS, {"metadata": metadata, "spec": template["spec"]["spec"]})
        assert created is not None, "a generated name is free"
        name: str = created["metadata"]["name"]
        return name


def _base_name(pod: str, entry: str) -> str:
    """What a generated claim's name begins with. Long names are cut so that something of both stays."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _BASE:
        return whole
    return f"{pod[: len(pod) * _BASE // len(whole)]}-{entry[: len(entry) * _BASE // len(whole)]}"
