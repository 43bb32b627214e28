"""The cases of kube-scheduler's own benchmark (scheduler_perf), for comparison with its published figures.

Nodes are its default (4 CPU, 32 Gi, 110 pods), in three zones; pods request 100m and 500Mi. Its sizes for 5,000 nodes
and for 500 are kept, all in one namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bench.harness.manifests import CLAIM_TEMPLATE, HIGH, LOW
from bench.harness.model import (
    ZONE,
    ZONES,
    Batch,
    Case,
    Creating,
    Deleting,
    Fate,
    Nodes,
    Recreating,
    Scenario,
    Spread,
    Template,
    Tuning,
)

HOSTNAME = "kubernetes.io/hostname"
SIZES = (500, 5_000)
PLAIN = Template(requests={"cpu": "100m", "memory": "500Mi"})
#: More than any node has, for pods that may preempt others in vain.
TOO_LARGE = Template(requests={"cpu": "1000", "memory": "500Mi"}, spec={"priorityClassName": HIGH})
#: A batch that churn creates as long as it continues.
_ENDLESS = 100_000


def nodes(count: int, *, devices: int = 0, pods: int = 110) -> Nodes:
    return Nodes(count=count, cpu="4", memory="32Gi", pods=pods, devices=devices)


def plain(labels: Mapping[str, str], spec: Mapping[str, Any]) -> Template:
    return Template(requests=PLAIN.requests, labels=labels, spec=spec)


def initial(count: int, template: Template = PLAIN, fate: Fate = Fate.BOUND) -> Batch:
    return Batch(name="initial", count=count, templates=(template,), fate=fate)


def measured(count: int, template: Template = PLAIN) -> Batch:
    return Batch(name="measured", count=count, templates=(template,))


def shape(
    count: int, *, small: tuple[int, int], large: tuple[int, int], template: Template = PLAIN, **more: Any
) -> Case:
    """Return a case with these numbers of pods before and measured, by the number of nodes.

    The pods before are plain ones with `plain_before`.
    """
    before, pods = small if count < SIZES[1] else large
    first = PLAIN if more.pop("plain_before", False) else template
    there = (initial(before, first),) if before else ()
    return Case(name="", nodes=nodes(count), before=there, load=measured(pods, template), **more)


def basic(count: int) -> Case:
    return shape(count, small=(500, 1_000), large=(1_000, 10_000))


def unschedulable(count: int) -> Case:
    """Return a case with five pods per second that fit nowhere, in addition to the measured ones."""
    waiting = Batch(name="too-large", count=_ENDLESS, templates=(TOO_LARGE,), fate=Fate.ANY)
    churn = (Creating(batch=waiting, every=0.2),)
    return shape(count, small=(10, 1_000), large=(20_000, 10_000), churn=churn)


def mixed_churn(count: int) -> Case:
    coming = Batch(name="too-large", count=_ENDLESS, templates=(TOO_LARGE,), fate=Fate.ANY)
    return shape(count, small=(0, 1_000), large=(0, 10_000), churn=(Recreating(batch=coming, every=1.0),))


def node_affinity(count: int) -> Case:
    expression = {"key": ZONE, "operator": "In", "values": list(ZONES[:2])}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    return shape(count, small=(500, 1_000), large=(5_000, 10_000), template=plain({}, spec))


def topology_spreading(count: int) -> Case:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }
    return shape(
        count,
        small=(1_000, 1_000),
        large=(5_000, 5_000),
        template=plain({"color": "blue"}, {"topologySpreadConstraints": [constraint]}),
        plain_before=True,
        rule=Spread(key=ZONE, both=False, skew=5),
    )


def pod_affinity(count: int) -> Case:
    template = plain({"color": "blue"}, _beside("podAffinity", "blue", ZONE))
    return shape(count, small=(500, 1_000), large=(5_000, 5_000), template=template)


def pod_anti_affinity(count: int) -> Case:
    template = plain({"color": "green"}, _beside("podAntiAffinity", "green", HOSTNAME))
    return shape(count, small=(100, 400), large=(1_000, 2_000), template=template)


def _beside(kind: str, color: str, topology: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": topology}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


_LOW = Template(requests={"cpu": "900m", "memory": "500Mi"}, spec={"priorityClassName": LOW})
_HIGH = Template(requests={"cpu": "3", "memory": "500Mi"}, spec={"priorityClassName": HIGH})


def preemption(count: int) -> Case:
    """Return a case in which every node is full with four pods, and each measured pod needs the capacity of three."""
    return Case(
        name="",
        nodes=nodes(count),
        before=(initial(4 * count, _LOW, Fate.PREEMPTED),),
        load=measured(500, _HIGH),
        most_runs=3,
        patience=1200.0,
    )


def preemption_aside(count: int) -> Case:
    """Return `preemption` at five pods per second; the measured pods are small and fit in addition.

    They have the priority of the preemptors, which would otherwise prefer them as victims.
    """
    preempting = Batch(name="preempting", count=_ENDLESS, templates=(_HIGH,), fate=Fate.ANY)
    return Case(
        name="",
        nodes=nodes(count),
        before=(initial(4 * count, _LOW, Fate.PREEMPTED),),
        load=measured(count, replace(PLAIN, spec={"priorityClassName": HIGH})),
        churn=(Creating(batch=preempting, every=0.2),),
    )


_LIGHT = Template(requests={"cpu": "1m", "memory": "1Mi"})


def gated(count: int) -> Case:
    """Return a case in which twice as many pods as nodes are gated while others are deleted, fifty per second."""
    waiting = replace(_LIGHT, spec={"schedulingGates": [{"name": "example.com/not-yet"}]})
    size = 2 * count
    return Case(
        name="",
        nodes=nodes(count),
        before=(
            Batch(name="gated", count=size, templates=(waiting,), fate=Fate.GATED),
            Batch(name="initial", count=size, templates=(_LIGHT,)),
        ),
        load=measured(size, _LIGHT),
        churn=(Deleting(batch="initial", rate=50.0),),
    )


def deleted_with_finalizers(count: int) -> Case:
    """Return a case in which as many pods as nodes are deleted, a hundred per second, and kept by a finalizer."""
    held = Template(requests=_LIGHT.requests, labels={"held": "true"}, finalizers=("example.com/held",))
    return Case(
        name="",
        nodes=nodes(count),
        before=(Batch(name="held", count=count, templates=(held,), fate=Fate.ANY),),
        load=measured(count, _LIGHT),
        churn=(Deleting(batch="held", rate=100.0),),
    )


def claim_templates(count: int) -> Case:
    """Return a case in which every pod has its own claim, created from a template, for one device."""
    spec = {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": CLAIM_TEMPLATE}]}
    return Case(
        name="", nodes=nodes(count, devices=4), load=measured(1_000 if count < 5_000 else 5_000, plain({}, spec))
    )


def _scenario(name: str, measures: str, shape: Callable[[int], Case], *, both: bool = False) -> Scenario:
    """Return the scenario of a case at all sizes; `both`: with events on and off."""
    cases = []
    for count in SIZES:
        for events in (True, False) if both else (True,):
            told = f"{count:,} nodes" + (f", events {'on' if events else 'off'}" if both else "")
            cases.append(replace(shape(count), name=told, at=float(count), tuning=Tuning(events=events)))
    return Scenario(name=name, group="scheduler_perf", measures=measures, cases=tuple(cases), axis="nodes")


SHAPES = (
    _scenario("basic", "SchedulingBasic: plain pods", basic, both=True),
    _scenario("unschedulable", "Unschedulable: beside pods that fit nowhere, five more per second", unschedulable),
    _scenario("mixed-churn", "SchedulingWithMixedChurn: nodes, services and pods come and go", mixed_churn),
    _scenario("node-affinity", "SchedulingNodeAffinity: pods for two zones", node_affinity),
    _scenario("topology-spreading", "TopologySpreading: zones, with a skew of 5", topology_spreading),
    _scenario("pod-affinity", "SchedulingPodAffinity: all pods in one zone", pod_affinity),
    _scenario("pod-anti-affinity", "SchedulingPodAntiAffinity: one pod per node", pod_anti_affinity),
    _scenario("preemption", "PreemptionBasic: each pod preempts three", preemption),
    _scenario("preemption-aside", "PreemptionAsync: plain pods, and five preemptors per second", preemption_aside),
    _scenario("gated", "SchedulingWhileGated: others gated, others deleted", gated),
    _scenario(
        "deleted-finalizers", "SchedulingDeletedPodsWithFinalizers: others are being deleted", deleted_with_finalizers
    ),
    _scenario(
        "claim-templates", "SchedulingWithResourceClaimTemplate: a claim and a device for each pod", claim_templates
    ),
)
