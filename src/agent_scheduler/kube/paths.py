"""Names in the paths of requests."""

from __future__ import annotations

import re
from urllib.parse import quote

#: Matches names that stand for themselves in a path: all that the API server lets objects have, but for a few kinds.
_stands_for_itself = re.compile(r"[A-Za-z0-9_.~-]+").fullmatch


def segment(name: str) -> str:
    """`name` as one segment of a path. Asked several times a pod, so names that need nothing are only looked at."""
    return name if _stands_for_itself(name) else quote(name, safe="")


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"
