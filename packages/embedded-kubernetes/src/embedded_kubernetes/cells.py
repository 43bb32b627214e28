"""The cells of built-in kinds in tables, as in kube-apiserver's internal printers.

`FILTERS` format the value at a path. `CELLS` compute a cell from the whole object. `event_row` and `pod_row` compute
all cells of an event or a pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .printing import NONE, UNKNOWN, age, joined, label_selector, labels
from .resource import Object, is_true

_FINISHED = {"Succeeded": ("Succeeded", "The pod has completed successfully."), "Failed": ("Failed", "The pod failed.")}


class _Restarts(NamedTuple):
    times: int = 0
    last: str = ""

    def plus(self, status: Object) -> _Restarts:
        """Add a container status. Canonical times compare as strings."""
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        return _Restarts(self.times + status.get("restartCount", 0), max(self.last, finished))


def pod_row(pod: Object, now: str) -> tuple[list[Any], list[Object]]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    reason, ready, total, restarts = _summary(spec, status)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in _FINISHED:
            reason = "Terminating"
    restarted = str(restarts.times)
    if restarts.times and restarts.last:
        restarted += f" ({age(restarts.last, now)} ago)"
    ips = status.get("podIPs") or [{"ip": status.get("podIP")}]
    cells = [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        restarted,
        age(pod["metadata"].get("creationTimestamp"), now),
        ips[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]
    finished = _FINISHED.get(status.get("phase", ""))
    if finished is None:
        return cells, []
    return cells, [{"type": "Completed", "status": "True", "reason": finished[0], "message": finished[1]}]


def _summary(spec: Object, status: Object) -> tuple[str, int, int, _Restarts]:
    """Return the status column, the numbers of ready and of all containers, and the restarts to display."""
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = 0
    restarts, of_sidecars = _Restarts(), _Restarts()
    initializing = False
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts = restarts.plus(container)
        sidecar = container.get("name") in sidecars
        if sidecar:
            of_sidecars = of_sidecars.plus(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        initializing = True
        waiting = (state.get("waiting") or {}).get("reason")
        if terminated is not None:
            reason = "Init:" + _ended(terminated)
        elif waiting and waiting != "PodInitializing":
            reason = "Init:" + waiting
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        break

    if initializing and not is_true(status, "Initialized"):
        return reason, ready, total, restarts
    restarts = of_sidecars
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        restarts = restarts.plus(container)
        state = container.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting:
            reason = waiting
        elif state.get("terminated") is not None:
            reason = _ended(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if is_true(status, "Ready") else "NotReady"
    return reason, ready, total, restarts


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(is_true(status, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


_ROLE_PREFIX = "node-role.kubernetes.io/"
#: The number of addresses or ports in a cell.
_SHOWN = 3
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _few(values: list[str], none: str) -> str:
    more = f" + {len(values) - _SHOWN} more..." if len(values) > _SHOWN else ""
    return joined(values[:_SHOWN], none) + more


#: A filter takes the value (None if missing; a list for a path with `*`), its argument, and the current time.
FILTERS: dict[str, Callable[[Any, str, str], Any]] = {
    "or": lambda value, otherwise, now: value or otherwise,
    "text": lambda value, otherwise, now: otherwise if value is None else str(value),
    "number": lambda value, _, now: value or 0,
    "flag": lambda value, _, now: bool(value),
    "truth": lambda value, _, now: "True" if value else "False",
    "count": lambda value, _, now: len(value or ()),
    "join": lambda value, _, now: ",".join(value or ()),
    "joined": lambda value, none, now: joined(value or (), none or NONE),
    "few": lambda value, _, now: _few(value or [], "<unset>"),
    "modes": lambda value, _, now: _modes(value),
    "labels": lambda value, _, now: labels(value),
    "selector": lambda value, _, now: label_selector(value),
    "age": lambda value, never, now: age(value, now) if value else never or UNKNOWN,
}


def _parts(obj: Object) -> tuple[Object, Object]:
    return obj.get("spec") or {}, obj.get("status") or {}


def _node_status(node: Object, now: str) -> str:
    spec, status = _parts(node)
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    words = ["Ready" if one.get("status") == "True" else "NotReady" for one in ready] or ["Unknown"]
    return ",".join([*words, "SchedulingDisabled"] if spec.get("unschedulable") else words)


def _node_roles(node: Object, now: str) -> str:
    held = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in held if key.startswith(_ROLE_PREFIX)}
    return joined(sorted({*roles, held.get("kubernetes.io/role", "")} - {""}))


def _config_map_data(obj: Object, now: str) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _quota(quota: Object, *, limits: bool) -> str:
    status = _parts(quota)[1]
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if name.startswith("limits.") is limits
    )


def _service_addresses(service: Object, now: str) -> str:
    spec, status = _parts(service)
    external = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
        external = [one.get("ip") or one.get("hostname") or "" for one in ingress] + external or ["<pending>"]
    elif spec.get("type") == "ExternalName":
        external = [spec.get("externalName") or ""]
    return joined(external)


def _service_ports(service: Object, now: str) -> str:
    return joined(
        f"{port.get('port')}" + (f":{port['nodePort']}" if port.get("nodePort") else "") + f"/{port.get('protocol')}"
        for port in _parts(service)[0].get("ports") or ()
    )


def _endpoints_addresses(obj: Object, now: str) -> str:
    shown = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return _few(shown, NONE)


def _slice_ports(obj: Object, now: str) -> str:
    return _few([str(port["port"]) if port.get("port") else "*" for port in obj.get("ports") or ()], "<unset>")


def _storage_phase(obj: Object, now: str) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else _parts(obj)[1].get("phase", "")


def _volume_claim(volume: Object, now: str) -> str:
    claim = _parts(volume)[0].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _claim_capacity(claim: Object, now: str) -> str:
    spec, status = _parts(claim)
    return (status.get("capacity") or {}).get("storage", "0") if spec.get("volumeName") else ""


def _claim_modes(claim: Object, now: str) -> str:
    spec, status = _parts(claim)
    return _modes(status.get("accessModes")) if spec.get("volumeName") else ""


def _storage_class_name(obj: Object, now: str) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return str(obj["metadata"]["name"]) + (" (default)" if default else "")


def _claim_state(claim: Object, now: str) -> str:
    status = _parts(claim)[1]
    words = ["deleted"] if "deletionTimestamp" in claim["metadata"] else []
    if status.get("allocation"):
        words += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    return ",".join(words or ["pending"])


def _ready_replicas(obj: Object, now: str) -> str:
    spec, status = _parts(obj)
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"


def _job_status(obj: Object, now: str) -> str:
    status = _parts(obj)[1]
    for kind in ("Complete", "Failed"):
        if is_true(status, kind):
            return kind
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    others = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((kind for kind in others if is_true(status, kind)), "Running")


def _job_completions(obj: Object, now: str) -> str:
    spec, status = _parts(obj)
    done, wanted, parallel = status.get("succeeded", 0), spec.get("completions"), spec.get("parallelism") or 0
    if wanted is not None:
        return f"{done}/{wanted}"
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(obj: Object, now: str) -> str:
    status = _parts(obj)[1]
    began = status.get("startTime")
    return age(began, status.get("completionTime") or now) if began else ""


def _controller(obj: Object, now: str) -> str:
    owner = next((one for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"


def _ingress_parameters(obj: Object, now: str) -> str:
    parameters = _parts(obj)[0].get("parameters")
    if not parameters:
        return NONE
    group = parameters.get("apiGroup")
    kind = f"{parameters.get('kind', '')}.{group}" if group else parameters.get("kind", "")
    return f"{kind}/{parameters.get('name', '')}"


def _ingress_address(obj: Object, now: str) -> str:
    found = (_parts(obj)[1].get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(each.get("ip") or each.get("hostname") or "" for each in found)


def _priority_level(obj: Object, field: str) -> Any:
    spec = _parts(obj)[0]
    limited = spec.get("limited") or spec.get("exempt") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return (limited if field == "nominalConcurrencyShares" else queuing).get(field, NONE)


def _slashed(held: Object | None, *fields: str) -> str:
    return "/".join(str((held or {}).get(field, "")) for field in fields)


def _subjects(obj: Object, kind: str) -> str:
    found = [subject for subject in obj.get("subjects") or () if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return ",".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)
    return ",".join(subject.get("name", "") for subject in found)


def _param_ref(obj: Object, now: str) -> str:
    reference = _parts(obj)[0].get("paramRef") or {}
    name = reference.get("name") or label_selector(reference.get("selector") or {})
    return f"{reference.get('namespace') or '*'}/{name}" if reference else "<unset>"


#: A cell takes the object, and its argument or else the current time.
CELLS: dict[str, Callable[[Object, str], Any]] = {
    "node_status": _node_status,
    "node_roles": _node_roles,
    "config_map_data": _config_map_data,
    "quota_requests": lambda quota, now: _quota(quota, limits=False),
    "quota_limits": lambda quota, now: _quota(quota, limits=True),
    "service_addresses": _service_addresses,
    "service_ports": _service_ports,
    "endpoints_addresses": _endpoints_addresses,
    "slice_ports": _slice_ports,
    "storage_phase": _storage_phase,
    "volume_claim": _volume_claim,
    "claim_capacity": _claim_capacity,
    "claim_modes": _claim_modes,
    "storage_class_name": _storage_class_name,
    "claim_state": _claim_state,
    "ready_replicas": _ready_replicas,
    "job_status": _job_status,
    "job_completions": _job_completions,
    "job_duration": _job_duration,
    "controller": _controller,
    "ingress_address": _ingress_address,
    "ingress_ports": lambda obj, _: "80, 443" if _parts(obj)[0].get("tls") else "80",
    "ingress_parameters": _ingress_parameters,
    "priority_level": _priority_level,
    "role_reference": lambda obj, _: _slashed(obj.get("roleRef"), "kind", "name"),
    "subjects": _subjects,
    "scale_target": lambda obj, _: _slashed(_parts(obj)[0].get("scaleTargetRef"), "kind", "name"),
    "param_kind": lambda obj, _: (
        _slashed(_parts(obj)[0].get("paramKind"), "apiVersion", "kind").removeprefix("/") or "<unset>"
    ),
    "param_ref": _param_ref,
}


def event_row(event: Object, now: str) -> tuple[list[Any], list[Object]]:
    # The two APIs have different names for the same fields.
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    count = event.get("count") or event.get("deprecatedCount") or 1
    if event.get("series"):
        last, count = event["series"].get("lastObservedTime"), event["series"].get("count", 0)
    kind = str(about.get("kind", "")).lower()
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController")
    host = source.get("host") or event.get("reportingInstance")
    cells = [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component or ''}, {host}" if host else component or "",
        str(event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        count,
        event["metadata"]["name"],
    ]
    return cells, []
