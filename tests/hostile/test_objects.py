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
from .objects import MERGE, MOST_BYTES, of_kind


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
