"""Devices and claims of a whole cluster that kubectl talks to."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded_kubernetes import EmbeddedCluster
from tests.embedded.support import container, named
from tests.support.needed import kubectl

DEVICE = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.agent-scheduler.io"}}]}}

pytestmark = [pytest.mark.e2e, pytest.mark.wide]


class Client:
    """A kubectl for one cluster."""

    def __init__(self, home: Path, config: Path) -> None:
        self._kubectl = kubectl()
        self._home = home
        self._config = config

    def kubectl(self, *arguments: str, stdin: object = None) -> str:
        env = {**os.environ, "KUBECONFIG": str(self._config), "HOME": str(self._home)}
        given = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(
            [self._kubectl, *arguments],
            input=given,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, kind: str) -> list[list[str]]:
        """What `kubectl get` prints below the headings."""
        return [line.split() for line in self.kubectl("get", kind).splitlines()[1:]]

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        version = "v1" if kind == "Pod" else "resource.k8s.io/v1"
        body = named(name, apiVersion=version, kind=kind, spec=spec)
        self.kubectl("create", "-f", "-", stdin=body)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Client]:
    with EmbeddedCluster(nodes=3, devices_per_node=2, device_nodes=2) as running:
        yield Client(tmp_path, running.kubeconfig)


def test_kubectl_sees_devices_published_and_a_claim_made_and_taken_back(cluster: Client) -> None:
    end = time.monotonic() + 60
    while len(slices := cluster.rows("resourceslices")) < 2:
        assert time.monotonic() < end, slices
    assert [row[1:4] for row in slices] == [
        [f"node-0000{number}", "gpu.agent-scheduler.io", f"node-0000{number}"] for number in range(2)
    ]
    assert [row[0] for row in cluster.rows("deviceclasses")] == ["gpu.agent-scheduler.io"]
    cluster.create("ResourceClaimTemplate", "gpu", {"spec": DEVICE})
    assert [row[0] for row in cluster.rows("resourceclaimtemplates")] == ["gpu"]
    entry = {"name": "g", "resourceClaimTemplateName": "gpu"}
    cluster.create("Pod", "p", {"containers": [container()], "resourceClaims": [entry]})
    told = "{.status.resourceClaimStatuses[0].resourceClaimName}"
    cluster.kubectl("wait", f"--for=jsonpath={told}", "pod/p", "--timeout=60s")
    name = cluster.kubectl("get", "pod", "p", "-o", f"jsonpath={told}")
    ((shown, state, _),) = cluster.rows("resourceclaims")
    assert (shown, state) == (name, "pending")
    uid = cluster.kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    result = {"request": "r", "driver": "gpu.agent-scheduler.io", "pool": "node-00000", "device": "gpu-0"}
    reserved = {"resource": "pods", "name": "p", "uid": uid}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", patch)
    assert cluster.rows("resourceclaims")[0][:2] == [name, "allocated,reserved"]
    cluster.kubectl("delete", "pod", "p", "--wait=false")
    cluster.kubectl("wait", "--for=delete", f"resourceclaim/{name}", "--timeout=60s")
