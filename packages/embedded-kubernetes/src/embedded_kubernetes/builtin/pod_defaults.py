"""Defaults of pods and pod templates, as in the API's `v1` defaulting.

Only absent fields are set. `default_pod` adds the defaults of pods alone: requests from limits, service links, and
the two tolerations of the DefaultTolerationSeconds admission plugin.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ..resource import Object
from .defaults import default_part
from .placement import DEFAULT_TOLERATIONS
from .pod_resources import container_requests

#: A repository name after an optional registry host in an image reference.
_REPOSITORY = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_CONTAINERS = ("containers", "initContainers")


@lru_cache(maxsize=4096)
def pull_policy(image: str) -> str:
    """Return `Always` for the tag latest, explicit or implied.

    Otherwise, and for an invalid reference, `IfNotPresent`.
    """
    name, _, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        head, tag = name, "" if digest else "latest"
    return "Always" if tag == "latest" and _REPOSITORY.fullmatch(head) else "IfNotPresent"


def _default_container(container: dict[str, Any]) -> None:
    if "resources" not in container:
        container["resources"] = {}
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if len(container) == 6 and "name" in container and "image" in container:
        return  # name, image and the four fields above: nothing else can be set
    default_part("container", container)


def _default_volume(volume: dict[str, Any]) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
        return
    default_part("volumeSource", volume)
    default_part("podVolume", volume)
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference") or "")


def default_pod_spec(spec: dict[str, Any]) -> None:
    """Set the defaults of a pod spec, in a pod or in a template."""
    for group in (*_CONTAINERS, "ephemeralContainers"):
        for container in spec.get(group) or ():
            _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if "terminationGracePeriodSeconds" not in spec:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    # `serviceAccount` is the deprecated name of `serviceAccountName`; both are set.
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_requests(container: dict[str, Any]) -> None:
    resources = container["resources"]
    if limits := resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _default_tolerations(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations")
    if not tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in DEFAULT_TOLERATIONS]
        return
    covered: set[str] = set()
    for toleration in tolerations:
        if toleration.get("effect", "") in ("NoExecute", ""):
            covered.add(toleration.get("key", ""))
    if "" not in covered:
        tolerations += [dict(entry) for entry in DEFAULT_TOLERATIONS if entry["key"] not in covered]


def _default_status(status: dict[str, Any]) -> None:
    """Set the pod's address in both of its fields."""
    ips = status.get("podIPs")
    if ip := status.get("podIP"):
        if not ips or ips[0].get("ip") != ip:
            status["podIPs"] = [{"ip": ip}]
    elif ips:
        status["podIP"] = ips[0].get("ip", "")


def default_pod(pod: Object) -> None:
    """Set every default of a pod, in place."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    default_pod_spec(spec)
    for group in _CONTAINERS:
        for container in spec.get(group) or ():
            _default_requests(container)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        for group in _CONTAINERS:
            for container in spec.get(group) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort")
    if (resources := spec.get("resources")) and (limits := resources.get("limits")):
        _default_pod_requests(spec, resources, limits)
    _default_tolerations(spec)
    if status := pod.get("status"):
        _default_status(status)


def _default_pod_requests(spec: dict[str, Any], resources: dict[str, Any], limits: dict[str, Any]) -> None:
    """Default pod-level requests (KEP-2837) to those of the containers, or else to the limit."""
    requests = resources.setdefault("requests", {})
    for name, amount in container_requests(spec).items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        requests.setdefault(name, amount)
