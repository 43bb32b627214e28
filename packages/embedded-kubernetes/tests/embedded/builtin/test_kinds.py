"""Kinds other than pods: defaults, checks, immutability."""

from __future__ import annotations

from copy import deepcopy

import pytest

from embedded_kubernetes.builtin.events import from_stored

from ..support import cases, container
from . import KINDS, created, places, refused, updated

_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a"}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}
_STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@cases("""
    kind | body | causes
    Node | {spec: {taints: [{key: k, effect: Nope}]}} | NotSupported metadata.taints[0].effect
    Node | {spec: {taints: [{key: k, effect: NoSchedule}, {key: k, effect: NoSchedule}]}} | Duplicate
        metadata.taints[1]
    Node | {spec: {podCIDR: nowhere}} | Invalid spec.podCIDRs[0]
    Namespace | {metadata: {name: a.b}} | Invalid metadata.name
    Service | {metadata: {name: 1a}, spec: {ports: [{port: 80}]}} | Invalid metadata.name
    Service | {spec: {}} | Required spec.ports
    Service | {spec: {clusterIP: None}} | ''
    ConfigMap | {data: {a b: c}} | Invalid data[a b]
    ConfigMap | {data: {a: c}, binaryData: {a: Yw==}} | Invalid data[a]
    Secret | {type: kubernetes.io/tls} | Required data[tls.crt]; Required data[tls.key]
    PersistentVolumeClaim | {spec: {}} | Required spec.accessModes; Required spec.resources[storage]
    PersistentVolume | {spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}} | Required spec
    StorageClass | {} | Required provisioner
    StorageClass | {provisioner: x, volumeBindingMode: Soon} | NotSupported volumeBindingMode
    CSINode | {spec: {drivers: [{name: d}]}} | Required spec.drivers[0].nodeID
    Lease | {spec: {leaseDurationSeconds: 0}} | Invalid spec.leaseDurationSeconds
    PriorityClass | {metadata: {name: system-x}, value: 1} | Forbidden metadata.name
    PriorityClass | {value: 2000000000} | Forbidden value
    PodDisruptionBudget | {spec: {minAvailable: 1, maxUnavailable: 1}} | Invalid spec
    PodDisruptionBudget | {spec: {minAvailable: many}} | Invalid spec.minAvailable
    PodDisruptionBudget | {spec: {maxUnavailable: -1}} | Invalid spec.maxUnavailable
    ResourceClaim | {spec: {devices: {requests: [{name: r}]}}} | Required spec.devices.requests[0]
    DeviceClass | {spec: {selectors: [{}]}} | Required spec.selectors[0].cel
    ResourceSlice | {spec: {driver: d, pool: {name: p, resourceSliceCount: 1}}} | Required spec
    ResourceSlice | {spec: {driver: d, nodeName: n, pool: {name: p, resourceSliceCount: 1}, devices: [{name: a,
        attributes: {v: {version: '1'}}}]}} | Invalid spec.devices[0].attributes[v].version
    Deployment | {spec: {selector: {matchLabels: {a: x}}, template: {metadata: {labels: {a: b}}, spec: {containers:
        [{name: c, image: i}]}}}} | Invalid spec.template.metadata.labels
    ReplicaSet | {spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}} |
        Required spec.selector; Invalid spec.template.metadata.labels
    DaemonSet | {spec: {template: {metadata: {labels: {a: -}}, spec: {containers: [{name: c, image: i}]}}}} |
        Invalid spec.template.metadata.labels; Invalid spec.template.labels
    LimitRange | {spec: {limits: [{type: Pod, min: {cpu: '2'}, max: {cpu: '1'}}, {type: All}]}} | Invalid
        spec.limits[0].min[cpu]; Invalid spec.limits[1].type
    ResourceQuota | {spec: {hard: {things: '1'}}} | Invalid spec.hard[things]; Invalid spec.hard[things]
    Node | {status: {capacity: {a.io/b: '1.5'}, allocatable: {cpu: '1'}}} | Invalid status.capacity.a.io/b
    ClusterRole | {metadata: {name: a:b}, rules: [{verbs: [get]}]} | Required rules[0].apiGroups; Required
        rules[0].resources
    RuntimeClass | {handler: Not A Label} | Invalid handler
    RuntimeClass | {handler: h, overhead: {podFixed: {cpu: '-1'}}} | Invalid overhead.podFixed[cpu]
    RuntimeClass | {handler: h, scheduling: {tolerations: [{operator: Exists}, {operator: Exists}]}} |
        Duplicate scheduling.tolerations[1]
    Job | {spec: {template: {spec: {restartPolicy: Always, containers: [{name: c, image: i}]}}}} | Required
        spec.template.spec.restartPolicy
    Job | {} | Required spec.template.spec.containers; Required spec.template.spec.restartPolicy
    Deployment | {} | Required spec.selector; Invalid spec.template.metadata.labels; Required
        spec.template.spec.containers
    Job | {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}, parallelism:
        -1}} | Invalid spec.parallelism
    Job | {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}, completionMode:
        Indexed, parallelism: 2}} | Required spec.completions
    Job | {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}, manualSelector:
        true}} | Required spec.selector
    CronJob | {spec: {jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c,
        image: i}]}}}}}} | Required spec.schedule
    CronJob | {spec: {schedule: '* *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers:
        [{name: c, image: i}]}}}}}} | Invalid spec.schedule
    CronJob | {spec: {schedule: TZ=UTC * * * * *, jobTemplate: {spec: {template: {spec: {restartPolicy: Never,
        containers: [{name: c, image: i}]}}}}}} | Invalid spec.schedule
    EndpointSlice | {addressType: IPv4, endpoints: [{addresses: [x]}]} | Invalid endpoints[0].addresses[0]
    EndpointSlice | {addressType: Pigeon, endpoints: []} | NotSupported addressType
    EndpointSlice | {addressType: IPv4, endpoints: [], ports: [{port: 1}, {port: 2}]} | Duplicate ports[1].name
    NetworkPolicy | {spec: {podSelector: {}, ingress: [{from: [{}]}]}} | Required spec.ingress[0].from[0]
    NetworkPolicy | {spec: {podSelector: {}, policyTypes: [Sideways]}} | NotSupported spec.policyTypes[0]
    IngressClass | {spec: {}} | Required spec.controller
    IngressClass | {spec: {controller: a.b/c, parameters: {kind: K}}} | Required spec.parameters.name
    FlowSchema | {spec: {matchingPrecedence: 20000}} | Invalid spec.matchingPrecedence; Required
        spec.priorityLevelConfiguration.name
    PriorityLevelConfiguration | {spec: {type: Limited}} | Required spec.limited
    ControllerRevision | {revision: -1} | Invalid revision; Required data
    """)
def test_an_object_is_refused_for_what_is_wrong_with_it(kind, body, causes):
    assert refused(KINDS[kind], body) == causes


@cases("""
    kind | before | change | causes
    Node | {spec: {podCIDR: 10.0.0.0/24}} | {spec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24]}} | Forbidden
        spec.podCIDRs
    Node | {spec: {}} | {spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24], providerID: x}} | ''
    Node | {spec: {providerID: x}} | {spec: {providerID: y}} | Forbidden spec.providerID
    ConfigMap | {immutable: true, data: {a: '1'}} | {data: {a: '2'}} | Forbidden data
    ConfigMap | {immutable: true} | {immutable: false} | Forbidden immutable
    Secret | {} | {type: x} | Invalid type
    PersistentVolumeClaim | {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}} | {spec:
        {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: v}} | ''
    PersistentVolumeClaim | {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}} | {spec:
        {accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}} | Forbidden spec
    StorageClass | {provisioner: x} | {provisioner: y} | Forbidden provisioner
    StorageClass | {provisioner: x} | {volumeBindingMode: WaitForFirstConsumer} | Invalid volumeBindingMode
    PriorityClass | {value: 1} | {value: 2} | Forbidden value
    RuntimeClass | {handler: a} | {handler: b} | Invalid handler
    ResourceClaim | {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}} | {spec: {devices:
        {}}} | Invalid spec
    ResourceClaimTemplate | {spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}} |
        {spec: {spec: {devices: {}}}} | Invalid spec
    RoleBinding | {roleRef: {kind: Role, name: a}} | {roleRef: {kind: Role, name: b}} | Invalid roleRef
    """)
def test_what_must_not_change_does_not(kind, before, change, causes):
    resource = KINDS[kind]
    old = created(resource, before)
    assert updated(resource, old, {**deepcopy(old), **change})[1] == causes


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"labels": {"a/b/c": "d"}}, "Invalid metadata.labels"),
        ({"labels": {"a": "-"}}, "Invalid metadata.labels"),
        ({"finalizers": ["plain"]}, "Invalid metadata.finalizers[0]"),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "Invalid metadata.finalizers"),
        ({"ownerReferences": [_OWNER]}, "Invalid metadata.ownerReferences.uid"),
        (
            {"ownerReferences": [{**_OWNER, "uid": uid, "controller": True} for uid in "ab"]},
            "Invalid metadata.ownerReferences",
        ),
        ({"name": "a" * 254}, "Invalid metadata.name"),
        ({"generateName": "Bad-", "name": "Bad-abcde"}, "Invalid metadata.generateName; Invalid metadata.name"),
        ({"annotations": {"a": "x" * 300_000}}, "TooLong metadata.annotations"),
    ],
)
def test_metadata_is_refused_for_what_is_wrong_with_it(metadata, cause):
    assert refused(KINDS["ConfigMap"], {"metadata": metadata}) == cause


def test_an_object_being_deleted_takes_no_new_finalizers():
    resource = KINDS["ConfigMap"]
    old = created(resource, {"metadata": {"finalizers": ["a.io/b"]}})
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = deepcopy(old)
    new["metadata"]["finalizers"] = ["a.io/b", "c.io/d"]
    assert "Forbidden metadata.finalizers" in updated(resource, old, new)[1]


def test_a_nodes_allocatable_is_its_capacity_unless_it_says_otherwise():
    capacity = {"cpu": "4"}
    stored = created(KINDS["Node"], {"status": {"capacity": capacity}})
    assert stored["status"]["allocatable"] == capacity
    assert stored["status"]["allocatable"] is not stored["status"]["capacity"]


def test_a_service_gets_an_address_of_the_service_network_and_keeps_it():
    resource = KINDS["Service"]
    old = created(resource, {"metadata": {"uid": "0badcafe-0000"}, "spec": {"ports": [{"port": 80}]}})
    spec = old["spec"]
    assert spec["clusterIP"].startswith("10.")
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    new = deepcopy(old)
    del new["spec"]["clusterIP"], new["spec"]["clusterIPs"]
    stored, causes = updated(resource, old, new)
    assert causes == ""
    assert stored["spec"]["clusterIP"] == spec["clusterIP"]
    new["spec"]["clusterIP"] = "10.96.0.1"
    assert updated(resource, old, new)[1] == "Invalid spec.clusterIPs[0]"


def test_a_core_event_read_in_the_new_shape_shows_no_empty_reporter():
    shown = from_stored(created(KINDS["Event"], {"involvedObject": {"namespace": "t"}, "count": 3}))
    assert "reportingController" not in shown
    assert shown["deprecatedCount"] == 3


@cases("""
    body | causes
    {type: Normal} | [involvedObject.namespace, eventTime]
    {type: Odd, involvedObject: {namespace: t}} | [eventTime, type]
    {type: Normal, eventTime: '2026', involvedObject: {namespace: t}, reportingComponent: c, reportingInstance: i,
        reason: r} | [action]
    {type: Normal, eventTime: '2026', involvedObject: {namespace: t}, reportingComponent: c, reportingInstance: i,
        reason: r, action: a, series: {count: 1}} | [series.count, series.lastObservedTime]
    """)
def test_a_new_event_must_say_when_who_and_what(body, causes):
    assert places(refused(KINDS["Event.new"], body)) == causes


def test_what_may_change_in_a_stateful_set_is_told_of_its_spec():
    resource = KINDS["StatefulSet"]
    spec = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "template": _TEMPLATE}
    old = created(resource, {"spec": spec})
    new = deepcopy(old)
    new["spec"]["replicas"] = 3
    assert updated(resource, old, new)[1] == ""
    new["spec"]["serviceName"] = "t"
    assert updated(resource, old, new)[1] == "Forbidden spec"


def test_a_claim_that_is_not_bound_keeps_its_spec_and_names_its_mode():
    resource = KINDS["PersistentVolumeClaim"]
    old = created(resource, {"spec": dict(_STORAGE)})
    new = deepcopy(old)
    new["spec"]["volumeMode"] = "Block"
    assert updated(resource, old, new)[1] == "Forbidden spec; Invalid volumeMode"
