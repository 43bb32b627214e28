"""The Helm chart renders what the kustomizations render, and both match Kubernetes' schemas and its API server."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.embedded import embedded_cluster
from tests.support.kustomize import render
from tests.support.needed import tool
from tests.support.objects import collection
from tests.support.places import CONFIG

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Json = dict[str, Any]

CHART = CONFIG / "helm" / "agent-scheduler"
#: The version of Kubernetes whose schemas the manifests must match.
SCHEMAS = "kubernetes_validate/kubernetes-json-schema/v1.36.0-local-strict"
#: Flags that enable a part, and the folder of the kustomization with the same objects.
PARTS = {
    "default": (),
    "controllers": ("--set=scheduler.enabled=false", "--set=controllers.enabled=true"),
    "webhook": ("--set=scheduler.enabled=false", "--set=webhook.enabled=true"),
    "gate-policy": ("--set=scheduler.enabled=false", "--set=gatePolicy.enabled=true"),
}
EVERYTHING = tuple(
    f"--set={part}.enabled=true"
    for part in ("controllers", "webhook", "gatePolicy", "networkPolicy", "priorityAndFairness")
)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("helm"), *words], capture_output=True, text=True, check=False, timeout=60)


def templated(*flags: str, namespace: str = "agent-scheduler") -> list[Json]:
    told = helm("template", "it", str(CHART), "--namespace", namespace, *flags)
    assert told.returncode == 0, told.stderr
    return [each for each in yaml.safe_load_all(told.stdout) if each]


def in_order(objects: list[Json]) -> list[Json]:
    """Return the objects in order, each without what only its origin adds."""
    plain = map(without_its_own, objects)
    return sorted(plain, key=lambda each: (each["kind"], each["metadata"]["name"]))


def without_its_own(each: Json) -> Json:
    """Return the object without what a chart, or a kustomization, adds."""
    # kustomize's name of the ConfigMap ends in a hash of its content, by which it restarts pods.
    each = json.loads(re.sub(r"(agent-scheduler-configuration)-\w{10}", r"\1", json.dumps(each)))
    for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
        (each["metadata"].get("labels") or {}).pop(label, None)
    if each["kind"] == "ConfigMap":
        each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
    if each["kind"] == "Deployment":
        each["spec"]["template"]["metadata"].pop("annotations", None)
    return each


def test_the_chart_is_what_the_kustomizations_make_of_it() -> None:
    made = runpy.run_path(str(CONFIG / "helm" / "make.py"))["files"]()
    there = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    assert there == made, "run: python config/helm/make.py"


@pytest.mark.parametrize(
    "part", ["default", *(pytest.param(each, marks=pytest.mark.wide) for each in PARTS if each != "default")]
)
def test_helm_and_kustomize_give_the_same_objects(part: str) -> None:
    theirs = [each for each in render(CONFIG / part) if each["kind"] != "Namespace"]
    assert in_order(templated(*PARTS[part])) == in_order(theirs)


def test_everything_lies_in_the_namespace_of_the_release() -> None:
    for each in templated(*EVERYTHING, namespace="elsewhere"):
        assert '"namespace": "agent-scheduler"' not in json.dumps(each), each["metadata"]["name"]
        assert "namespace=agent-scheduler" not in json.dumps(each)


def test_what_prometheus_and_grafana_read_stays_as_it_is_written() -> None:
    """Both have templates of their own."""
    made = templated("--set=monitoring.enabled=true,scheduler.enabled=false")
    objects = {each["kind"]: each for each in made}
    folder = CONFIG / "components" / "monitoring"
    rules = yaml.safe_load((folder / "alerts.yaml").read_text())
    assert objects["PrometheusRule"]["spec"] == rules["spec"]
    dashboard = json.loads(objects["ConfigMap"]["data"]["dashboard.json"])
    assert dashboard == json.loads((folder / "dashboard.json").read_text())
    assert objects["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert objects["ServiceMonitor"]["metadata"]["namespace"] == "agent-scheduler"


def test_values_reach_where_they_belong() -> None:
    objects = templated(
        "--set=image.repository=registry.example/a,image.tag=v7,image.pullSecrets[0].name=pull",
        "--set=scheduler.replicas=3,scheduler.nodeSelector.pool=system",
        "--set=scheduler.extraArgs[0]=--log-level=debug",
        "--set=scheduler.configuration.workerCount=4",
    )
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert container["image"] == "registry.example/a:v7"
    assert container["args"][-1] == "--log-level=debug"
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    (configuration,) = (each for each in objects if each["kind"] == "ConfigMap")
    assert yaml.safe_load(configuration["data"]["configuration.yaml"])["workerCount"] == 4
    before = next(each for each in templated() if each["kind"] == "Deployment")
    sums = [each["spec"]["template"]["metadata"]["annotations"] for each in (before, deployment)]
    assert sums[0] != sums[1], "another configuration restarts the pods"
    digest = "sha256:" + "0" * 64
    pinned = next(each for each in templated(f"--set=image.digest={digest}") if each["kind"] == "Deployment")
    assert pinned["spec"]["template"]["spec"]["containers"][0]["image"] == f"agent-scheduler@{digest}"


def test_a_certificate_of_an_authority_is_mounted_and_named() -> None:
    flags = "controllers.enabled=true,scheduler.certificateSecret=tls,controllers.certificateSecret=tls"
    deployments = [each for each in templated(f"--set={flags}") if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for each in deployments:
        pod = each["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["volumes"][-1] == {"name": "certificate", "secret": {"secretName": "tls"}}
        mount = {"name": "certificate", "mountPath": "/etc/agent-scheduler-tls", "readOnly": True}
        assert container["volumeMounts"][-1] == mount
        files = [f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key")]
        assert container["args"][-2:] == [f"--tls-cert-file={files[0]}", f"--tls-private-key-file={files[1]}"]


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("scheduler.replica=3", "replica"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("controllers.enable={jobs}", "enable"),
        ("image.digest=abc", "digest"),
    ],
)
def test_a_value_without_meaning_is_refused_by_its_name(flag: str, named: str) -> None:
    told = helm("template", "it", str(CHART), f"--set={flag}")
    assert told.returncode != 0
    assert named in told.stderr


# ---- the receivers


def of_both() -> Iterator[Json]:
    yield from templated(*EVERYTHING)
    for part in (*PARTS, "crd"):
        yield from render(CONFIG / part)


@cache
def validator(kind: str, version: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    group, _, number = version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], number)))
    with zipfile.ZipFile(tool("schemas.zip")) as schemas:
        shared, schema = (json.loads(schemas.read(f"{SCHEMAS}/{each}.json")) for each in ("_definitions", name))
    return Draft202012Validator(schema, registry=Resource.from_contents(shared) @ Registry())


@pytest.mark.wide
def test_every_object_is_as_kubernetes_schemas_have_it() -> None:
    seen = set()
    for each in of_both():
        problems = [
            f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
            for error in validator(each["kind"], each["apiVersion"]).iter_errors(each)
        ]
        assert problems == [], (each["kind"], each["metadata"]["name"])
        seen.add(each["kind"])
    assert {"Deployment", "ClusterRole", "CustomResourceDefinition", "MutatingWebhookConfiguration"} <= seen


@pytest.mark.wide
async def test_an_api_server_that_is_strict_takes_every_object() -> None:
    async with embedded_cluster() as cluster:
        for each in (*render(CONFIG / "default"), *render(CONFIG / "crd"), *templated(*EVERYTHING)):
            where = collection(each)
            answer = await cluster.call("POST", f"{where}?fieldValidation=Strict", each)
            assert answer.status in (201, 409), (each["kind"], answer.body)
