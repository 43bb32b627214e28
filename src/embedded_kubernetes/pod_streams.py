"""What is asked of a pod's kubelet through the server: its log, exec, attach and portforward.

No kubelet listens here, so a pod that has a node is answered as one whose node has no address, and one without as a
real server answers it by itself. Follows LogLocation and streamLocation of pkg/registry/core/pod.
"""

from __future__ import annotations

from .errors import ApiError, bad_request, method_not_allowed, not_found
from .registry import Served
from .requests import Request, Response

#: Subresource -> methods.
STREAMS = {
    "log": ("GET", "HEAD"),
    "exec": ("GET", "POST"),
    "attach": ("GET", "POST"),
    "portforward": ("GET", "POST"),
}


def respond(served: Served, namespace: str, name: str, subresource: str, request: Request) -> Response:
    """204 for the log of a pod without a node; everything else is refused."""
    if request.method not in STREAMS[subresource]:
        raise method_not_allowed()
    record = served.table.get(namespace, name)
    if record is None:
        raise not_found("pods", "", name)
    if served.stored.decode(record.data)["spec"].get("nodeName"):
        raise ApiError(500, "", "no preferred addresses found; known addresses: []")
    if subresource == "log":
        return Response(204, b"", "")
    raise bad_request(f"pod {name} does not have a host assigned")
