"""The real kubectl against the embedded cluster, over HTTP, with the commands that users type."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import needed
from tests.support.batched import CRDS, pod_group, queue
from tests.support.objects import Object, container, make, pod

from .kubectl import Kubectl, cluster

_POD = pod(
    "web",
    labels={"app": "web"},
    scheduler="default-scheduler",
    containers=[
        container(
            requests={"cpu": "1", "memory": "64Mi"}, ports=[{"containerPort": 80}], env=[{"name": "A", "value": "1"}]
        )
    ],
)
_SETTINGS: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "1"}}
_WIDGETS = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
      additionalPrinterColumns:
        - {name: Color, type: string, jsonPath: .spec.color}
        - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                color: {type: string, enum: [red, blue], description: Its color.}
                size: {type: integer, default: 3}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
""")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Yield an administrator's kubectl. `robot` may read pods in the namespace default, and list the kinds."""
    home = tmp_path_factory.mktemp("kubectl")
    (home / "tokens.csv").write_text('ann-token,ann,u-ann,"dev,ops"\n')
    flags = ("--authorization-mode=RBAC", f"--token-auth-file={home}/tokens.csv", f"--audit-log-path={home}/audit")
    with cluster(home, "--nodes=3", *flags) as kubectl:
        kubectl("create", "serviceaccount", "robot")
        kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=pods")
        kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:robot")
        yield kubectl


@pytest.fixture
def kubectl(server: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """Yield kubectl in a namespace of the test's own."""
    name = request.node.name.replace("_", "-").split("[")[0][:50].strip("-")
    server.namespace = "default"
    server("create", "namespace", name)
    server.namespace = name
    yield server
    server.namespace = "default"
    server("delete", "namespace", name, "--wait=false")


def _bind(kubectl: Kubectl, pod: str, node: str) -> None:
    """Bind a pod like a scheduler."""
    body = {**make("Binding", "v1", pod, {}), "target": {"kind": "Node", "name": node}}
    kubectl("create", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/binding", "-f", "-", stdin=body)


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_nodes_are_listed_narrow_and_wide(kubectl: Kubectl) -> None:
    rows = _rows(kubectl("get", "nodes"))
    assert [row[:2] for row in rows] == [[f"node-0000{index}", "Ready"] for index in range(3)]
    assert "INTERNAL-IP" in kubectl("get", "nodes", "-o", "wide")


def test_a_pod_goes_through_get_in_every_form_and_is_described(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=_POD)
    assert _rows(kubectl("get", "pods"))[0][:3] == ["web", "0/1", "Pending"]
    assert "NOMINATED NODE" in kubectl("get", "pods", "-o", "wide")
    assert _rows(kubectl("get", "pods", "-l", "app=web"))[0][0] == "web"
    assert kubectl("get", "pods", "-l", "app!=web") == ""
    assert _rows(kubectl("get", "pods", "--field-selector", "status.phase=Pending"))[0][0] == "web"
    assert kubectl("get", "pods", "--field-selector", "spec.nodeName=nowhere") == ""
    assert kubectl.json("get", "pod", "web")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "schedulerName: default-scheduler" in kubectl("get", "pod", "web", "-o", "yaml")
    assert kubectl("get", "pod", "web", "-o", "jsonpath={.spec.containers[0].image}") == "i"
    assert _rows(kubectl("get", "pods", "-A"))
    assert '"gitVersion"' in kubectl("get", "--raw", "/version")
    assert "NotFound" in kubectl.refused("get", "pod", "nope")
    assert "QoS Class:       Burstable" in kubectl("describe", "pod", "web")
    assert "Capacity:" in kubectl("describe", "node", "node-00000")


def test_a_watch_prints_each_change(kubectl: Kubectl) -> None:
    kubectl("run", "one", "--image=x")
    with kubectl.started("get", "pods", "-w", "--no-headers") as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:3] == ["one", "0/1", "Pending"]
        kubectl("run", "two", "--image=x")
        assert watch.stdout.readline().split()[0] == "two"
        kubectl("delete", "pod", "one")
        assert watch.stdout.readline().split()[0] == "one"


def test_apply_creates_changes_and_then_leaves_alone(kubectl: Kubectl) -> None:
    settings = dict(_SETTINGS)
    assert "created" in kubectl.apply(settings)
    assert "unchanged" in kubectl.apply(settings)
    settings["data"] = {"a": "2"}
    difference = kubectl.run("diff", "-f", "-", stdin=settings, fails=True)
    assert '+  a: "2"' in difference.stdout
    assert kubectl.json("get", "configmap", "c")["data"] == {"a": "1", "b": "1"}, "a diff changed the object"
    assert "configured" in kubectl.apply(settings)
    assert kubectl.json("get", "configmap", "c")["data"] == {"a": "2"}
    assert kubectl("diff", "-f", "-", stdin=settings) == ""


def test_apply_merges_a_pods_lists_by_key(kubectl: Kubectl) -> None:
    kubectl.apply(_POD)
    changed = json.loads(json.dumps(_POD))
    changed["spec"]["containers"][0]["image"] = "nginx:2"
    changed["metadata"]["labels"]["tier"] = "front"
    assert "configured" in kubectl.apply(changed)
    pod = kubectl.json("get", "pod", "web")
    assert pod["spec"]["containers"][0]["image"] == "nginx:2"
    assert pod["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert pod["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert "unchanged" in kubectl.apply(changed)


def test_unknown_fields_are_refused_or_warned_of(kubectl: Kubectl) -> None:
    odd = {**_POD, "spec": {**_POD["spec"], "nosuchfield": 1}}  # type: ignore[dict-item]
    assert 'unknown field "spec.nosuchfield"' in kubectl.refused("apply", "-f", "-", stdin=odd)
    warned = kubectl.run("apply", "--validate=warn", "-f", "-", stdin=odd)
    assert 'Warning: unknown field "spec.nosuchfield"' in warned.stderr
    assert "nosuchfield" not in kubectl.json("get", "pod", "web")["spec"]


@pytest.mark.wide
def test_server_side_apply_shares_takes_over_and_conflicts(kubectl: Kubectl) -> None:
    def settings(**data: str) -> Object:
        return {**_SETTINGS, "data": data}

    def apply(manager: str, *more: str) -> tuple[str, ...]:
        return ("apply", "--server-side", f"--field-manager={manager}", *more, "-f", "-")

    kubectl(*apply("one"), stdin=settings(a="1", b="1"))
    kubectl(*apply("two"), stdin=settings(c="1"))
    refusal = kubectl.refused(*apply("two"), stdin=settings(a="2", c="1"))
    assert 'conflict with "one": .data.a' in refusal
    kubectl(*apply("two", "--force-conflicts"), stdin=settings(a="2", c="1"))
    kubectl(*apply("one"), stdin=settings(b="1"))
    assert kubectl.json("get", "configmap", "c")["data"] == {"a": "2", "b": "1", "c": "1"}
    kubectl(*apply("two"), stdin=settings())
    assert kubectl.json("get", "configmap", "c")["data"] == {"b": "1"}
    managers = kubectl.json("get", "configmap", "c", "--show-managed-fields")["metadata"]["managedFields"]
    assert {entry["manager"] for entry in managers} >= {"one"}


@pytest.mark.wide
def test_delete_waits_forces_and_takes_whole_selections(kubectl: Kubectl) -> None:
    for name in ("one", "two", "three"):
        kubectl("run", name, "--image=x", "--labels=kind=many")
    kubectl("delete", "pod", "one", "--grace-period=1")
    kubectl("delete", "pod", "two", "--grace-period=0", "--force")
    assert [row[0] for row in _rows(kubectl("get", "pods"))] == ["three"]
    kubectl("delete", "pods", "-l", "kind=many")
    assert kubectl("get", "pods") == ""
    assert "NotFound" in kubectl.refused("delete", "pod", "one")
    assert kubectl("delete", "pod", "one", "--ignore-not-found") == ""


@pytest.mark.wide
def test_a_node_is_tainted_cordoned_and_drained(kubectl: Kubectl) -> None:
    node = "node-00001"
    kubectl("taint", "node", node, "k=v:NoSchedule")
    kubectl("taint", "node", node, "k=w:NoExecute")
    taints = kubectl.json("get", "node", node)["spec"]["taints"]
    assert sorted((taint["key"], taint["value"], taint["effect"]) for taint in taints) == [
        ("k", "v", "NoSchedule"),
        ("k", "w", "NoExecute"),
    ]
    kubectl("taint", "node", node, "k-")
    assert "taints" not in kubectl.json("get", "node", node)["spec"]

    kubectl("run", "one", "--image=x")
    _bind(kubectl, "one", node)
    kubectl("wait", "pod/one", "--for=condition=Ready", "--timeout=200s")
    assert "declare no controller" in kubectl.refused("drain", node)
    assert "pod/one evicted" in kubectl("drain", node, "--force", "--grace-period=0", "--timeout=200s")
    assert "SchedulingDisabled" in kubectl("get", "node", node)
    kubectl("uncordon", node)
    assert "unschedulable" not in kubectl.json("get", "node", node)["spec"]
    kubectl("cordon", node)
    kubectl("uncordon", node)


@pytest.mark.wide
def test_wait_sees_conditions_paths_and_deletions(kubectl: Kubectl) -> None:
    kubectl.apply(_POD)
    kubectl("wait", "pod/web", "--for=jsonpath={.status.phase}=Pending", "--timeout=200s")
    with kubectl.started("wait", "pod/web", "--for=condition=Ready", "--timeout=200s") as waiting:
        _bind(kubectl, "web", "node-00000")
        assert waiting.wait(200) == 0
    with kubectl.started("wait", "pod/web", "--for=delete", "--timeout=200s") as waiting:
        kubectl("delete", "pod", "web", "--grace-period=0", "--force")
        assert waiting.wait(200) == 0
    kubectl("run", "one", "--image=x")
    assert "timed out" in kubectl.refused("wait", "pod/one", "--for=condition=Ready", "--timeout=1s")


@pytest.mark.wide
def test_a_deployment_is_rolled_out_scaled_and_taken_back(kubectl: Kubectl) -> None:
    placed = json.dumps({"spec": {"template": {"spec": {"nodeName": "node-00000"}}}})
    kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=2")
    kubectl("patch", "deployment", "web", "-p", placed)
    rolled_out = ("rollout", "status", "deployment/web", "--timeout=200s")
    assert "successfully rolled out" in kubectl(*rolled_out)
    kubectl("scale", "deployment/web", "--replicas=3")
    kubectl("set", "image", "deployment/web", "nginx=nginx:2")
    assert "successfully rolled out" in kubectl(*rolled_out)
    assert _rows(kubectl("get", "deployment", "web"))[0][1:4] == ["3/3", "3", "3"]
    kubectl("rollout", "undo", "deployment/web")
    kubectl(*rolled_out)
    images = kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert images.count("nginx:1") == 3
    kubectl("delete", "deployment", "web", "--cascade=foreground")
    assert kubectl("get", "pods", "-l", "app=web", "-o", "name") == ""


@pytest.mark.wide
def test_stateful_sets_daemon_sets_and_cron_jobs_run(kubectl: Kubectl) -> None:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()], "nodeName": "node-00000"}}
    selecting = {"selector": {"matchLabels": labels}, "template": template}
    kubectl.apply(make("StatefulSet", "apps/v1", "s", {"replicas": 2, "serviceName": "s", **selecting}))
    kubectl("rollout", "status", "statefulset/s", "--timeout=200s")
    kubectl("set", "image", "statefulset/s", "c=new")
    kubectl("rollout", "status", "statefulset/s", "--timeout=200s")
    assert "\n2         <none>" in kubectl("rollout", "history", "statefulset/s")
    kubectl("rollout", "undo", "statefulset/s")
    kubectl("rollout", "status", "statefulset/s", "--timeout=200s")
    assert kubectl("get", "pod", "s-1", "-o", "jsonpath={.spec.containers[0].image}") == "i"
    kubectl("delete", "statefulset", "s", "--cascade=foreground")

    kubectl.apply(make("DaemonSet", "apps/v1", "d", selecting))
    kubectl("rollout", "status", "daemonset/d", "--timeout=200s")
    assert _rows(kubectl("get", "daemonset", "d"))[0][1:6] == ["1"] * 5

    kubectl("create", "cronjob", "c", "--image=x", "--schedule=*/5 * * * *")
    assert _rows(kubectl("get", "cronjob", "c"))[0][:8] == ["c", "*/5", "*", "*", "*", "*", "<none>", "False"]
    kubectl("create", "quota", "q", "--hard=count/configmaps=1")
    kubectl("wait", "quota/q", "--for=jsonpath={.status.used.count/configmaps}=1", "--timeout=200s")
    assert "exceeded quota: q, requested: count/configmaps=1" in kubectl.refused("create", "configmap", "b")


def test_a_simulated_container_has_a_log_and_runs_nothing(kubectl: Kubectl) -> None:
    annotations = {"agent-scheduler.io/run-seconds": "1", "agent-scheduler.io/exit-code": "3"}
    kubectl.apply(pod("p", annotations=annotations, containers=[container()], node="node-00000", restartPolicy="Never"))
    kubectl("wait", "pod/p", "--for=jsonpath={.status.startTime}", "--timeout=200s")
    lines = kubectl("logs", "-f", "p").splitlines()
    assert lines[0] == "container c of image i started; it is simulated, no program runs"
    assert lines[-1] == "container c exited with code 3"
    assert 'previous terminated container "c" in pod "p" not found' in kubectl.refused("logs", "p", "--previous")
    kubectl.apply(pod("q", node="node-00000"))
    kubectl("wait", "pod/q", "--for=condition=Ready", "--timeout=200s")
    assert "the containers of this cluster are simulated" in kubectl.refused("exec", "q", "--", "ls")


def test_with_a_scheduler_beside_it_every_pod_runs(tmp_path: Path) -> None:
    data = f"--data-dir={tmp_path / 'data'}"
    with cluster(tmp_path, "--nodes=2", "--with-scheduler", "--scheduler-arg=--port=0", "--tls", data) as kubectl:
        kubectl("run", "web", "--image=x")
        kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=200s")
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container()]}}
        kubectl.apply(
            make("DaemonSet", "apps/v1", "d", {"selector": {"matchLabels": {"app": "x"}}, "template": template})
        )
        kubectl("rollout", "status", "daemonset/d", "--timeout=200s")
        assert _rows(kubectl("get", "daemonset", "d"))[0][1:6] == ["2"] * 5
        uid = kubectl.json("get", "pod", "web")["metadata"]["uid"]
    again = tmp_path / "again"
    again.mkdir()
    with cluster(again, "--tls", data) as kubectl:
        assert kubectl.json("get", "pod", "web")["metadata"]["uid"] == uid
        assert len(_rows(kubectl("get", "nodes"))) == 2


def test_a_scheduler_that_cannot_start_ends_the_cluster_with_one_error(tmp_path: Path) -> None:
    flags = ("--port=0", "--nodes=1", "--with-scheduler", "--scheduler-arg=--nonsense")
    command = [sys.executable, "-m", "agent_scheduler", "cluster", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(" cluster: the scheduler ended with exit code 2")
    assert "Traceback" not in done.stderr


def test_explain_reads_the_openapi_document(kubectl: Kubectl) -> None:
    explained = kubectl("explain", "pod.spec.containers")
    assert "FIELD: containers <[]Container>" in explained
    assert "imagePullPolicy" in explained
    assert "containerPort\t<integer> -required-" in kubectl("explain", "pod.spec.containers.ports", "--recursive")
    assert "GROUP:      policy" in kubectl("explain", "poddisruptionbudget.spec")


def test_events_are_listed_with_what_they_are_about(kubectl: Kubectl) -> None:
    kubectl.apply(_POD)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": kubectl.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": kubectl.namespace},
        "reason": "Testing",
        "message": "hello there",
        "type": "Normal",
        "count": 2,
        "source": {"component": "test"},
        **dict.fromkeys(("firstTimestamp", "lastTimestamp"), "2026-01-01T00:00:00Z"),
    }
    event["involvedObject"]["uid"] = kubectl.json("get", "pod", "web")["metadata"]["uid"]
    kubectl("create", "-f", "-", stdin=event)
    row = next(row for row in _rows(kubectl("get", "events")) if "Testing" in row)
    assert row[1:4] == ["Normal", "Testing", "pod/web"]
    assert "hello there" in kubectl("events", "--for", "pod/web")
    assert "Testing" in kubectl("describe", "pod", "web").split("Events:")[1]
    with kubectl.started("events", "--watch", "--for", "pod/web", "--no-headers") as watch:
        assert watch.stdout is not None
        assert "hello there" in watch.stdout.readline()
        kubectl(
            "create", "-f", "-", stdin={**event, "metadata": {**event["metadata"], "name": "f"}, "message": "again"}
        )
        assert "again" in watch.stdout.readline()


_CREATED = [
    ("configmap", "x", "--from-literal=a=b"),
    ("secret", "generic", "x", "--from-literal=a=b"),
    ("serviceaccount", "x"),
    ("deployment", "x", "--image=nginx", "--replicas=2", "--port=80", "--", "sleep", "1"),
    ("poddisruptionbudget", "x", "--selector=app=web", "--min-available=50%"),
    ("quota", "x", "--hard=pods=2,cpu=1"),
    ("role", "x", "--verb=get,list", "--resource=pods"),
    ("rolebinding", "x", "--role=x", "--user=u", "--serviceaccount=t:s"),
    ("service", "clusterip", "x", "--tcp=80:8080"),
    ("service", "nodeport", "y", "--tcp=80"),
    ("service", "externalname", "z", "--external-name=example.com"),
]


def _kept(made: Any, wanted: Any) -> bool:
    """Return whether all of `wanted` that is not empty is in `made`."""
    if isinstance(wanted, dict):
        return isinstance(made, dict) and all(
            _kept(made.get(key), value) for key, value in wanted.items() if value not in (None, {}, [], "")
        )
    if isinstance(wanted, list):
        return isinstance(made, list) and len(made) == len(wanted) and all(map(_kept, made, wanted))
    return bool(made == wanted)


@pytest.mark.wide
@pytest.mark.parametrize("arguments", _CREATED, ids=lambda arguments: "-".join(arguments[:2]))
def test_every_create_command_arrives_whole(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    """Objects that kubectl may send and receive as protobuf are compared with its own dry run."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    dry, real = ((*arguments[:at], *more, "-o", "json", *arguments[at:]) for more in (["--dry-run=client"], []))
    wanted = json.loads(kubectl("create", *dry))
    received = json.loads(kubectl("create", *real))
    made = kubectl.json("get", wanted["kind"].lower(), wanted["metadata"]["name"])
    for obj in (wanted, received, made):
        obj.pop("status", None)
    assert _kept(made, wanted), (made, wanted)
    # A controller may have written annotations meanwhile.
    assert _kept(made, {**received, "metadata": {}}) and _kept(received, {**made, "metadata": {}}), (made, received)


@pytest.mark.wide
def test_every_release_of_kubectl_creates_what_only_it_knows(kubectl: Kubectl) -> None:
    # From 1.32 on, these commands send protobuf with fields of their own release.
    usual = kubectl.program
    try:
        for release, kubectl.program in enumerate(needed.kubectls()):
            _creates_by_protobuf(kubectl, f"x{release}")
            _validates_before_it_sends(kubectl, f"x{release}")
    finally:
        kubectl.program = usual


def _creates_by_protobuf(kubectl: Kubectl, name: str) -> None:
    kubectl("create", "job", name, "--image=x", "--", "sleep", "1")
    assert kubectl.json("get", "job", name)["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "1"]
    kubectl("create", "cronjob", name, "--image=x", "--schedule=* * * * *")
    kubectl("create", "job", f"{name}-now", f"--from=cronjob/{name}")
    assert kubectl.json("get", "job", f"{name}-now")["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert "kind: Deployment" in kubectl("create", "deployment", name, "--image=x", "-o", "yaml")
    kubectl("autoscale", "deployment", name, "--min=1", "--max=3", "--cpu-percent=70")
    assert kubectl.json("get", "hpa", name)["spec"]["maxReplicas"] == 3
    debugging = kubectl.run("debug", "node/node-00000", "--image=x")
    made = re.search(r"debugging pod (\S+) ", debugging.stdout + debugging.stderr)
    assert made and kubectl.json("get", "pod", made[1])["spec"]["volumes"][0]["hostPath"] == {"path": "/", "type": ""}


def _validates_before_it_sends(kubectl: Kubectl, name: str) -> None:
    settings = {**_SETTINGS, "metadata": {"name": name}}
    assert 'no matches for kind "Foo" in version "nope/v1"' in kubectl.refused(
        "create", "-f", "-", stdin={**settings, "apiVersion": "nope/v1", "kind": "Foo"}
    )
    items: Object = {"apiVersion": "v1", "kind": "List", "items": [settings, {**settings, "bogus": 1}]}
    assert 'unknown field "bogus"' in kubectl.refused("create", "-f", "-", stdin=items)
    items["items"][1] = make("Service", "v1", name, {"ports": [{"port": 80, "targetPort": "http"}]})
    assert kubectl.apply(items).split() == [f"configmap/{name}", "created", f"service/{name}", "created"]


def test_a_custom_resource_lives_like_any_other(kubectl: Kubectl) -> None:
    kubectl.apply(_WIDGETS)
    kubectl("wait", "crd/widgets.example.com", "--for=condition=Established", "--timeout=200s")
    widget = make("Widget", "example.com/v1", "w", {"color": "red"})
    assert "created" in kubectl.apply(widget)
    assert "unchanged" in kubectl.apply(widget)
    assert kubectl.json("get", "wd", "w")["spec"] == {"color": "red", "size": 3}
    assert kubectl("get", "widgets").splitlines()[0].split() == ["NAME", "COLOR", "READY"]
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "widget", "w", "--subresource=status", "--type=merge", "-p", status)
    assert _rows(kubectl("get", "widgets")) == [["w", "red", "True"]]
    kubectl("wait", "widget/w", "--for=condition=Ready", "--timeout=200s")
    kubectl("scale", "widget/w", "--replicas=5", "--current-replicas=3")
    assert kubectl.json("get", "widget", "w")["spec"]["size"] == 5
    kubectl("scale", "widget/w", "--replicas=3")
    assert "Its color." in kubectl("explain", "widget.spec")
    widget["spec"]["color"] = "green"
    assert 'supported values: "red", "blue"' in kubectl.refused("apply", "-f", "-", stdin=widget)
    widget["spec"] = {"color": "blue", "odd": 1}
    assert "unknown field" in kubectl.refused("apply", "-f", "-", stdin=widget)
    widget["spec"] = {"color": "blue"}
    kubectl.apply(widget, "--server-side", "--field-manager=me", "--force-conflicts")
    assert kubectl.json("get", "widget", "w")["metadata"]["generation"] == 4
    kubectl("delete", "widget", "w")
    kubectl("delete", "crd", "widgets.example.com")
    assert "could not find the requested resource" in kubectl.refused("get", "widgets.v1.example.com")


# ---- rights


@pytest.fixture
def admin(server: Kubectl) -> Kubectl:
    server.namespace = "default"
    return server


def test_kubectl_says_who_one_is(admin: Kubectl) -> None:
    assert "kubernetes-admin" in admin("auth", "whoami")
    ann = admin("auth", "whoami", "--token=ann-token", "-o", "json")
    user = json.loads(ann)["status"]["userInfo"]
    assert (user["username"], user["uid"]) == ("ann", "u-ann")
    assert user["groups"] == ["dev", "ops", "system:authenticated"]


def test_kubectl_says_what_one_may(admin: Kubectl) -> None:
    robot = "--as=system:serviceaccount:default:robot"
    assert admin("auth", "can-i", "*", "*").strip() == "yes"
    assert admin("auth", "can-i", "list", "pods", robot).strip() == "yes"
    assert admin.run("auth", "can-i", "delete", "pods", robot, fails=True).stdout.strip() == "no"
    assert admin.run("auth", "can-i", "get", "/metrics", robot, fails=True).stdout.strip() == "no"
    listed = admin("auth", "can-i", "--list", robot)
    assert any(line.startswith("pods ") and "[get list watch]" in line for line in listed.splitlines())


def test_a_token_that_kubectl_made_opens_what_its_account_may(admin: Kubectl) -> None:
    token = f"--token={admin('create', 'token', 'robot', '--duration=10m').strip()}"
    assert "system:serviceaccount:default:robot" in admin("auth", "whoami", token)
    assert admin("get", "pods", token, "-o", "name") == ""
    refusal = admin.refused("get", "secrets", token)
    assert "Error from server (Forbidden)" in refusal
    assert 'User "system:serviceaccount:default:robot" cannot list resource "secrets"' in refusal
    other = f"--token={admin('create', 'token', 'robot', '--audience=vault').strip()}"
    assert "Unauthorized" in admin.refused("get", "pods", other)


@pytest.mark.wide
def test_kubectl_acts_as_somebody_else_who_may(admin: Kubectl) -> None:
    assert "cannot list resource" in admin.refused("get", "pods", "--as=bob")
    admin("create", "clusterrolebinding", "viewers", "--clusterrole=view", "--group=viewers")
    assert admin("get", "pods", "--as=bob", "--as-group=viewers", "-o", "name") == ""
    assert "cannot impersonate" in admin.refused("get", "pods", "--token=ann-token", "--as=bob")


# ---- columns of queues and groups, the same as with Volcano's own kinds


@pytest.fixture(scope="module")
def batched(server: Kubectl) -> Kubectl:
    for file in CRDS:
        server("apply", "-f", str(file))
    server("wait", "--for=condition=Established", *(f"crd/{each}.scheduling.volcano.sh" for each in _KINDS))
    return server


_KINDS = ("queues", "podgroups")


def test_queues_and_groups_have_the_columns_of_volcano(kubectl: Kubectl, batched: Kubectl) -> None:
    kubectl.apply(queue("research", parent="root", capability={"cpu": 4}))
    kubectl.apply(pod_group("train", minMember=3, queue="research", status={"phase": "Inqueue", "running": 2}))
    assert kubectl("get", "q").split() == ["NAME", "PARENT", "research", "root"]
    names, row = (line.split() for line in kubectl("get", "podgroup-v1beta1", "-o", "wide").splitlines())
    assert names == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE", "QUEUE"]
    assert (row[:4], row[5]) == (["train", "Inqueue", "3", "2"], "research")
    assert kubectl("get", "pg", "-o", "name").endswith("/train\n")
    assert "queue.scheduling.volcano.sh/research" in kubectl("get", "queue,podgroup")


def test_explain_tells_what_a_field_is_for(kubectl: Kubectl, batched: Kubectl) -> None:
    assert "before others take it back" in kubectl("explain", "queue.spec.deserved")
    assert "before any of them is bound" in kubectl("explain", "podgroup.spec.minMember")
