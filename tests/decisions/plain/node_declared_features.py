"""NodeDeclaredFeatures: what a pod needs of the kubelet, its node has to have declared.

From `plugins/nodedeclaredfeatures` and `component-helpers/nodedeclaredfeatures`. Of the features that 1.36 knows, two
matter to where a pod goes.
"""

from __future__ import annotations

from tests.decisions.plain.world import Obj, Refusal, World


def needed(pod: Obj) -> set[str]:
    spec, found = pod["spec"], set()
    rules = [
        rule
        for container in (*spec["containers"], *(spec.get("initContainers") or ()))
        for rule in container.get("restartPolicyRules") or ()
    ]
    if any(rule["action"] == "RestartAllContainers" for rule in rules):
        found.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        found.add("UserNamespacesHostNetworkSupport")
    return found


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if needed(pod) <= set(node["status"].get("declaredFeatures") or ()):
        return None
    return Refusal(("node(s) didn't match Pod's required features",), unresolvable=True)
