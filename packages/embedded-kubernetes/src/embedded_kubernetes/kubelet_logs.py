"""Logs of simulated containers: the phases of their life, since no program runs in them.

They are derived from the pod's status, so nothing is stored. As on a node, the log is that of the last start, or with
`previous` of the one before, and `follow` ends when the container exits. Errors have the words of kube-apiserver and
kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .conditions import find
from .errors import ApiError, bad_request
from .registry import Served
from .requests import Request, Response, Stream
from .resource import Object
from .store import Event, Record
from .times import parse
from .watch import Watcher

#: Seconds after which a followed log ends.
_LONGEST = 4 * 3600.0
_TEXT = "text/plain"


class _Line(NamedTuple):
    time: str
    text: str


def respond(served: Served, record: Record, request: Request, *, now: float) -> Response | Stream:
    """Return the log of a container of a bound pod. Raises 400 if there is none."""
    pod = served.stored.decode(record.data)
    name = _container(pod, request.parameters.get("container", ""))
    previous = request.flag("previous")
    lines = _lines(pod, name, previous=previous)
    since = request.parameters.get("sinceTime", "")
    if (seconds := request.number("sinceSeconds")) is not None:
        start = now - seconds
    else:
        start = parse(since).timestamp() if since else 0.0
    shown = [each for each in lines if parse(each.time).timestamp() >= start]
    tail = request.number("tailLines")
    if tail is not None:
        shown = shown[len(shown) - min(tail, len(shown)) :]
    stamped = request.flag("timestamps")
    if request.flag("follow") and not previous and not _has_ended(pod, name):
        return _follow(served, record, name, [_encoded(each, stamped) for each in shown], len(lines), stamped=stamped)
    body = b"".join(_encoded(each, stamped) for each in shown)
    most = request.number("limitBytes")
    return Response(200, body if most is None else body[:most], _TEXT)


def _follow(served: Served, record: Record, name: str, first: list[bytes], known: int, *, stamped: bool) -> Stream:
    """Send the lines, then those of each change of the pod."""
    table, uid = served.table, record.uid
    restarts = _restarts(served.stored.decode(record.data), name)

    def changed(event: Event) -> None:
        nonlocal known
        if event.record.uid != uid:
            return
        if event.type == "DELETED":
            watcher.end()
            return
        pod = served.stored.decode(event.record.data)
        is_next = _restarts(pod, name) != restarts
        lines = _lines(pod, name, previous=is_next)
        if is_next or _has_ended(pod, name):
            watcher.offer(_encoded(lines[-1], stamped))
            watcher.end()
            return
        for line in lines[known:]:
            watcher.offer(_encoded(line, stamped))
        known = max(known, len(lines))

    watcher = Watcher(served.view, namespace="", selector=None, floor=0, backlog=first, bookmarks=False)
    table.subscribers.append(changed)
    watcher._close = lambda: table.subscribers.remove(changed)
    return Stream(watcher=watcher, timeout=_LONGEST, version=lambda: 0, content_type=_TEXT)


def _encoded(line: _Line, stamped: bool) -> bytes:
    return f"{line.time} {line.text}\n".encode() if stamped else f"{line.text}\n".encode()


def _container(pod: Object, wanted: str) -> str:
    """Return the name of the container. Raises 400 for an unknown one, or if one must be named."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    own = [each["name"] for each in spec["containers"]]
    first = [each["name"] for each in spec.get("initContainers") or ()]
    if not wanted and len(own) == 1:
        return str(own[0])
    if not wanted:
        also = f" or one of the init containers: [{' '.join(first)}]" if first else ""
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(own)}]{also}")
    if wanted not in own and wanted not in first:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def _report(pod: Object, name: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    reports = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return next((each for each in reports if each["name"] == name), {})


def _restarts(pod: Object, name: str) -> int:
    return int(_report(pod, name).get("restartCount", 0))


def _has_ended(pod: Object, name: str) -> bool:
    return "running" not in (_report(pod, name).get("state") or {})


def _lines(pod: Object, name: str, *, previous: bool) -> list[_Line]:
    report, about = _report(pod, name), f'container "{name}" in pod "{pod["metadata"]["name"]}"'
    state, last = report.get("state") or {}, (report.get("lastState") or {}).get("terminated")
    if previous:
        if last is None:
            raise bad_request(f"previous terminated {about} not found")
        return list(_life(name, report, last, exited=True))
    if "terminated" in state:
        return list(_life(name, report, state["terminated"], exited=True))
    if "running" in state:
        found = list(_life(name, report, state["running"], exited=False))
        if report.get("ready"):
            found.append(_Line(_ready_since(pod, state["running"]), f"container {name} is ready"))
        return found
    if last is not None:
        # It waits for its restart.
        return list(_life(name, report, last, exited=True))
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        raise bad_request(f"{about} is terminated")
    raise bad_request(f"{about} is waiting to start: ContainerCreating")


def _life(name: str, report: dict[str, Any], state: dict[str, Any], *, exited: bool) -> Iterator[_Line]:
    start = state.get("startedAt") or state.get("finishedAt", "")
    yield _Line(start, f"container {name} of image {report.get('image', '')} started; it is simulated, no program runs")
    if exited:
        yield _Line(state["finishedAt"], f"container {name} exited with code {state.get('exitCode', 0)}")


def _ready_since(pod: Object, running: dict[str, Any]) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = find(conditions, "ContainersReady") or {}
    return max(str(running["startedAt"]), ready.get("lastTransitionTime") or "")


def refuse(subresource: str) -> ApiError:
    """Return the error for exec, attach and portforward to a simulated pod."""
    why = f"{subresource} is not possible: the containers of this cluster are simulated, and no program runs in them"
    return ApiError(501, "NotImplemented", why)
