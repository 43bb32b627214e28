"""README.md lists what a real cluster has besides: nothing of it is there, and nothing else is missing."""

from __future__ import annotations

import re

from embedded.support import World
from embedded_kubernetes.controller_list import NAMES

from ..places import README

#: The controllers of kube-controller-manager 1.36.
_REAL = """bootstrap-signer-controller certificatesigningrequest-approving-controller
certificatesigningrequest-cleaner-controller certificatesigningrequest-signing-controller
cloud-node-lifecycle-controller clusterrole-aggregation-controller cronjob-controller daemonset-controller
deployment-controller device-taint-eviction-controller disruption-controller endpoints-controller
endpointslice-controller endpointslice-mirroring-controller ephemeral-volume-controller garbage-collector-controller
horizontal-pod-autoscaler-controller job-controller kube-apiserver-serving-clustertrustbundle-publisher-controller
legacy-serviceaccount-token-cleaner-controller namespace-controller node-ipam-controller node-lifecycle-controller
node-route-controller persistentvolume-attach-detach-controller persistentvolume-binder-controller
persistentvolume-expander-controller persistentvolume-protection-controller
persistentvolumeclaim-protection-controller pod-garbage-collector-controller podcertificaterequest-cleaner-controller
replicaset-controller replicationcontroller-controller resourceclaim-controller resourcequota-controller
root-ca-certificate-publisher-controller selinux-warning-controller service-cidr-controller service-lb-controller
serviceaccount-controller serviceaccount-token-controller statefulset-controller
storage-version-migrator-controller storageversion-garbage-collector-controller taint-eviction-controller
token-cleaner-controller ttl-after-finished-controller ttl-controller validatingadmissionpolicy-status-controller
volumeattributesclass-protection-controller"""
#: Controllers whose work others do: the collector, and the controller of Jobs.
_ALWAYS = frozenset({"garbage-collector-controller", "namespace-controller", "ttl-after-finished-controller"})

_TABLE = README.read_text().partition("## Differences from a real cluster\n")[2].partition("\n## ")[0]


def test_each_controller_of_a_real_cluster_runs_or_is_listed() -> None:
    listed = set(re.findall(r"`([a-z-]+-controller)`", _TABLE))
    assert listed == set(_REAL.split()) - {*NAMES} - _ALWAYS
    assert set(_REAL.split()) >= {*NAMES}


def test_the_groups_that_are_listed_are_not_served() -> None:
    world = World()
    groups = re.findall(r"`(/apis/[a-z0-9./]+)`", _TABLE)
    assert len(groups) == 4
    assert [world.send("GET", group).status for group in groups] == [404] * 4
