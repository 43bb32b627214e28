from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml

from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.requests import Request, Response
from embedded_kubernetes.store import Store, random_uids
from tests.support.places import CONFIG

from .kinds import HOSTILE_KINDS
from .objects import MERGE, MOST_BYTES, of_kind, some


def server() -> Api:
    api = Api(Store(clock=lambda: 1_767_225_600.0, uid=random_uids(random.Random(1).getrandbits)), (*BUILTIN, *ALPHA))
    for file in sorted((CONFIG / "crd").glob("*_*.yaml")):
        answer(api, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text()))
    return api


def answer(api: Api, method: str, path: str, body: Any) -> Response:

    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = api.handle(
        Request(method, path, body=data, content_type=MERGE if method == "PATCH" else "application/json")
    )
    assert isinstance(found, Response)
    return found


@pytest.mark.parametrize("resource", HOSTILE_KINDS)
def test_an_api_server_accepts_each_object(resource: str) -> None:
    api = server()
    refused = []
    for seed in range(3):
        for each in of_kind(resource, random.Random(seed), prefix=f"h{seed}"):
            for method, path, data in each.requests:
                assert len(data) < MOST_BYTES, each
                response = answer(api, method, path, data)
                if response.status not in (200, 201):
                    refused.append(f"{each} {seed}: {response.body[:300]!r}")
    assert refused == []


def test_each_kind_that_a_role_reads_has_hostile_objects() -> None:
    """Roles hold exactly what is read, so a kind that is read anew is missing here."""
    read: set[str] = set()
    for file in CONFIG.glob("[!hs]*/*.yaml"):
        for manifest in yaml.safe_load_all(file.read_text()):
            is_role = (manifest or {}).get("kind") in ("Role", "ClusterRole")
            for rule in (manifest.get("rules") or ()) if is_role else ():
                if {"get", "list", "watch"} & {*rule["verbs"]} and "resources" in rule:
                    kinds = [name.partition("/")[0] for name in rule["resources"]]
                    read |= {f"{name}.{group}".rstrip(".") for name in kinds for group in rule["apiGroups"]}
    assert read == {*HOSTILE_KINDS}


def test_a_seed_draws_the_same_objects() -> None:
    first, second = ([each.data for each in some(random.Random(7), scale=0.1)] for _ in range(2))
    assert first == second
