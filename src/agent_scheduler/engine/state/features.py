"""Features of kubelets that pods may require and nodes declare (KEP-5328).

The names and rules are those of kube-scheduler 1.36 (component-helpers, `nodedeclaredfeatures`). Features that concern
resizing only, and names unknown to it, do not exclude nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from agent_scheduler.objects import wire

from .podspec import readable_part

#: The exit of a container may restart all containers of its pod (KEP-5532).
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
#: A pod may use the host's network together with a user namespace (KEP-5607).
HOST_NETWORK_USERS: Final = "UserNamespacesHostNetworkSupport"

KNOWN: Final = frozenset({RESTART_ALL, HOST_NETWORK_USERS})
NO_FEATURES: Final[frozenset[str]] = frozenset()

_RESTARTS_ALL: Final = "RestartAllContainers"
_rules = msgspec.json.Decoder(list[wire.RestartRule] | None)


def known_features(declared: Iterable[str]) -> frozenset[str]:
    """Return the declared features that pods may require."""
    return KNOWN.intersection(declared) or NO_FEATURES


def required_features(spec: wire.PodSpec, problems: list[str]) -> frozenset[str]:
    """Return the features that a pod's node must declare. Invalid parts of the spec are added to `problems`."""
    found = set()
    if spec.host_network and spec.host_users is False:
        found.add(HOST_NETWORK_USERS)
    for place, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers or ()):
            rules: list[wire.RestartRule] | None = None
            if container.restart_policy_rules:
                where = f"spec.{place}[{index}].restartPolicyRules"
                rules = readable_part(_rules, container.restart_policy_rules, where, problems)
            if any(rule.action == _RESTARTS_ALL for rule in rules or ()):
                found.add(RESTART_ALL)
    return frozenset(found) if found else NO_FEATURES
