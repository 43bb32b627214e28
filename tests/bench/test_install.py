"""The demo's scheduler has the rights that an installed one has, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.demo.job_story import KINDS
from bench.harness import install
from bench.harness.manifest_files import manifest_file
from bench.harness.site import BATCH_KINDS
from bench.shards import CRD
from embedded_kubernetes import EmbeddedCluster
from kube_client.credentials import Fixed, bearer
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint
from tests.support.places import BENCH, ROOT


def test_the_wheel_carries_what_is_read_in_a_checkout() -> None:
    project = (BENCH / "pyproject.toml").read_text()
    files = [*install.files(install.SCHEDULER), *install.files(install.CONTROLLERS)]
    for name in {*files, *KINDS, *BATCH_KINDS, CRD}:
        assert f'"config/{name}" = "bench/harness/config/{name}"' in project
        assert manifest_file(name) == ROOT / "config" / name


@pytest.mark.parametrize("component", [install.SCHEDULER, install.CONTROLLERS], ids=lambda component: component.folder)
def test_a_component_has_all_roles_of_its_installation_but_that_of_readers_of_metrics(
    component: install.Component,
) -> None:
    installation = yaml.safe_load((ROOT / "config" / component.folder / "kustomization.yaml").read_text())
    roles = {name for name in installation["resources"] if name.startswith("rbac")} - {"rbac-metrics.yaml"}
    assert roles == {name for name in component.files if name.startswith("rbac")}


async def test_the_token_is_one_of_an_account_with_the_installed_roles() -> None:
    async with EmbeddedCluster(authorization_mode="RBAC", token="admin", tls=False) as server:

        async def status(token: str, method: str, path: str) -> int:
            transport = Http1Transport(Endpoint(server.url, headers=Fixed(bearer(token)).headers))
            try:
                return (await transport.request(method, path, body=b"{}", timeout=10)).status
            finally:
                await transport.close()

        admin = Http1Transport(Endpoint(server.url, headers=Fixed(bearer("admin")).headers))
        try:
            token = await install.install(admin)
        finally:
            await admin.close()
        assert await status(token, "GET", "/api/v1/pods") == 200
        assert await status(token, "GET", "/apis/resource.k8s.io/v1/resourceslices") == 200
        assert await status(token, "POST", "/api/v1/namespaces/default/pods") == 403
        assert await status(token, "DELETE", "/api/v1/nodes/n1") == 403


def test_the_schedulers_kubeconfig_differs_in_the_token_alone(tmp_path: Path) -> None:
    config = {"clusters": [{"name": "c"}], "users": [{"name": "u", "user": {"token": "admin"}}]}
    (tmp_path / "admin").write_text(json.dumps(config))
    install.write_kubeconfig(tmp_path / "admin", "own", tmp_path / "own")
    written = json.loads((tmp_path / "own").read_text())
    assert written == {**config, "users": [{"name": "u", "user": {"token": "own"}}]}
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600


def test_missing_manifests_are_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.yaml is neither in .*harness/config nor in .*config"):
        manifest_file("none.yaml")
