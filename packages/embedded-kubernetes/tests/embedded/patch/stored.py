"""An API with an object of most built-in kinds, with a status if the kind has one; and patches of them."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import strategies as st

from embedded.support import CLAIMS, NOW, PODS, ClaimsWorld, definition
from embedded_kubernetes import schema_source as source
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.registry import Served
from embedded_kubernetes.resource import Object
from embedded_kubernetes.volume_binding import VolumeBinding

_MORE = {
    "labels": {"a": "1", "example.com/b": ""},
    "annotations": {"note": "x"},
    "finalizers": ["example.com/f"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
}

#: Kind -> the created object, and its status afterwards.
_OBJECTS = """
shared:
  container: &container {name: c, image: i, ports: [{name: web, containerPort: 80}], env: [{name: A, value:
    '1'}], resources: {requests: {cpu: 100m}, limits: {cpu: '1', memory: 1Gi}}, volumeMounts: [{name: v,
    mountPath: /v}], readinessProbe: {httpGet: {port: web}}}
  template: &template {metadata: {labels: {app: a}}, spec: {containers: [*container], volumes: [{name: v}]}}
  selector: &selector {matchLabels: {app: a}}
  devices: &devices {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
  condition: &condition {type: Ready, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z', reason: R,
    message: m}
objects:
  namespaces: [{metadata: {name: team}}, {phase: Active, conditions: [*condition]}]
  nodes: [{metadata: {name: n}, spec: {taints: [{key: k, effect: NoSchedule}]}}, {capacity: {cpu: '4', pods:
    '10'}, allocatable: {cpu: '4', pods: '10'}, conditions: [*condition]}]
  pods: [{spec: {containers: [*container], initContainers: [{name: i, image: i:1, restartPolicy: Always}],
    volumes: [{name: v, configMap: {name: m}}], tolerations: [{key: k, operator: Exists}], nodeSelector:
    {zone: a}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable:
    DoNotSchedule}]}}, {conditions: [{type: PodScheduled, status: 'False', reason: R, observedGeneration:
    1}]}]
  events: [{involvedObject: {kind: Pod, name: p, namespace: default}, reason: R, type: Normal}, null]
  leases.coordination.k8s.io: [{spec: {holderIdentity: h, leaseDurationSeconds: 3}}, null]
  priorityclasses.scheduling.k8s.io: [{value: 7, description: d}, null]
  poddisruptionbudgets.policy: [{spec: {minAvailable: 50%, selector: *selector}}, {expectedPods: 2}]
  configmaps: [{data: {a: '1', b: '2'}}, null]
  secrets: [{data: {a: Yw==}, stringData: {b: c}}, null]
  serviceaccounts: [{automountServiceAccountToken: false}, null]
  limitranges: [{spec: {limits: [{type: Container, default: {cpu: '1'}}]}}, null]
  services: [{spec: {selector: {app: a}, ports: [{name: x, port: 80}, {name: y, port: 81}]}}, {conditions:
    [*condition]}]
  endpoints: [{subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}, null]
  persistentvolumeclaims: [{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}},
    {phase: Pending, conditions: [{type: Resizing, status: 'True'}]}]
  persistentvolumes: [{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}},
    {phase: Available}]
  storageclasses.storage.k8s.io: [{provisioner: x, parameters: {a: b}}, null]
  csinodes.storage.k8s.io: [{spec: {drivers: [{name: d, nodeID: n}]}}, null]
  csidrivers.storage.k8s.io: [{spec: {attachRequired: false}}, null]
  volumeattachments.storage.k8s.io: [{spec: {attacher: a, nodeName: n, source: {persistentVolumeName: v}}},
    {attached: true}]
  deviceclasses.resource.k8s.io: [{spec: {selectors: [{cel: {expression: 'true'}}]}}, null]
  resourceclaims.resource.k8s.io: [{spec: *devices}, {allocation: {devices: {results: [{request: r, driver:
    d.example, pool: n, device: gpu-0}]}}, reservedFor: [{resource: pods, name: p, uid: u}]}]
  resourceclaimtemplates.resource.k8s.io: [{spec: {metadata: {labels: {a: b}}, spec: *devices}}, null]
  resourceslices.resource.k8s.io: [{spec: {driver: d.example, pool: {name: n, resourceSliceCount: 1},
    nodeName: n, devices: [{name: gpu-0, attributes: {a: {int: 0}}, capacity: {m: {value: 1Gi}}}]}}, null]
  deployments.apps: [{spec: {selector: *selector, template: *template}}, {replicas: 1}]
  statefulsets.apps: [{spec: {selector: *selector, template: *template, serviceName: s}}, {replicas: 1}]
  daemonsets.apps: [{spec: {selector: *selector, template: *template}}, {currentNumberScheduled: 0,
    desiredNumberScheduled: 1, numberMisscheduled: 0, numberReady: 0}]
  replicationcontrollers: [{spec: {selector: {app: a}, template: *template}}, {replicas: 1}]
  jobs.batch: [{spec: {template: {spec: {containers: [*container], volumes: [{name: v}], restartPolicy:
    Never}}}}, {active: 1, startTime: '2026-01-01T00:00:00Z'}]
  networkpolicies.networking.k8s.io: [{spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}}, null]
  clusterroles.rbac.authorization.k8s.io: [{rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]},
    null]
"""


def _objects() -> dict[tuple[str, str], tuple[Object, Object | None]]:
    found: dict[tuple[str, str], tuple[Object, Object | None]] = {}
    for name, (body, status) in yaml.load(_OBJECTS, Loader=yaml.CSafeLoader)["objects"].items():
        plural, _, group = name.partition(".")
        found[group, plural] = body, status
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    found["apiextensions.k8s.io", "customresourcedefinitions"] = definition(schema=schema), None
    return found


def collection(served: Served) -> str:
    """Return the path of a kind's objects in `default`, or in the cluster."""
    resource = served.resource
    within = "/namespaces/default" if resource.namespaced else ""
    return f"{resource.path}{within}/{resource.plural}"


class Stored:
    """An API with objects; `paths`: kind -> paths of its objects. Controllers have written some of them later."""

    def __init__(self) -> None:
        self.world = ClaimsWorld()
        self.paths: dict[tuple[str, str], list[str]] = {}
        for name, (body, status) in _objects().items():
            served = self.world.api.registry.stored(name)
            metadata = {"name": "a", **_MORE, **body.get("metadata", {})}
            made = self.world.post(collection(served), {**body, "metadata": metadata})
            path = f"{collection(served)}/{made['metadata']['name']}"
            if status is not None:
                self.world.patch(f"{path}/status", {"status": status})
            self.paths[name] = [path]
        # Another form of the object that is stored under the same name.
        self.paths["events.k8s.io", "events"] = ["/apis/events.k8s.io/v1/namespaces/default/events/a"]
        self._play()

    def _play(self) -> None:
        """Run controllers: for pods that are bound and run, with a claim each, and for a deletion that waits."""
        world = self.world
        world.controllers = [Kubelets(world.store), *world.controllers, VolumeBinding(world.api)]
        world.add_pod("running", r="template/a")
        world.pod("plain")
        world.pod("going", finalizers=["example.com/f"])
        world.settle()
        claim = world.told("running")["r"]
        world.allocate(claim, "running", node="n")
        for name in ("running", "plain"):
            assert world.bind(name, "n")[0] == 201
        world.delete(f"{PODS}/going")
        world.settle(60)
        self.paths["", "pods"] += [f"{PODS}/{name}" for name in ("running", "plain", "going")]
        self.paths["resource.k8s.io", "resourceclaims"].append(f"{CLAIMS}/{claim}")
        assert world.phase("running") == "Running"

    def served(self, name: tuple[str, str]) -> Served:
        """Return the kind by the group and name of its path."""
        found = self.world.api.registry.served[name[0], "v1"].get(name[1])
        assert found is not None
        return found


_STRINGS = st.sampled_from(
    ["", "a", "b", "c", "n", "x y", "a.b/c", "80", "Always", "NodePort", "ClusterIP", "Recreate", "None", NOW]
)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": _STRINGS,
    "boolean": st.booleans(),
    "integer": st.sampled_from([0, 1, -1, 80, 420]),
    "number": st.just(1.5),
    "time": st.sampled_from([NOW, "2026-01-01T01:00:00+01:00", "soon"]),
    "microtime": st.sampled_from([NOW, "2026-01-01T00:00:00.000001Z"]),
    "quantity": st.sampled_from(["1", "1000m", "0.5", 2, "much"]),
    "intorstring": st.sampled_from([0, 1, "50%"]),
    "bytes": st.sampled_from(["Yw==", "?"]),
}


def values(type_: source.Type, depth: int = 3) -> st.SearchStrategy[Any]:
    """Draw values of a type, most of them valid."""
    scalar = _SCALARS.get(type_.kind)
    if scalar is not None:
        return scalar
    if depth == 0:
        return st.sampled_from([{}, [], "a"])
    if type_.kind == "list":
        assert type_.item is not None
        return st.lists(values(type_.item, depth - 1), max_size=2)
    if type_.kind == "map":
        assert type_.item is not None
        return st.dictionaries(_STRINGS, values(type_.item, depth - 1), max_size=2)
    struct = source.struct_of(type_)
    if struct is None or not struct.fields:
        return st.sampled_from([{}, {"a": 1}])
    fields = st.sampled_from(sorted(struct.fields))
    return st.lists(fields, max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: values(struct.fields[name].type, depth - 1) for name in names})
    )


def patches(value: Any, type_: source.Type) -> st.SearchStrategy[Any]:
    """Draw merge patches of a value, with its fields and other fields of its type."""
    struct = source.struct_of(type_)
    if not isinstance(value, dict) or struct is None:
        return st.one_of(st.just(value), values(type_)) if value is not None else values(type_)

    def change(name: str) -> st.SearchStrategy[Any]:
        field = struct.fields.get(name)
        of_type = field.type if field is not None else source.Type("string")
        if name in value:
            return st.one_of(st.none(), patches(value[name], of_type), patches(value[name], of_type))
        return values(of_type)

    names = st.one_of(st.sampled_from(sorted(value) or ["a"]), st.sampled_from(sorted([*struct.fields, "unknown"])))
    return st.lists(names, min_size=1, max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: change(name) for name in chosen})
    )
