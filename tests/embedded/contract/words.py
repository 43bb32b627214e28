"""Compares what `comparison` leaves out, where a recording is matched word for word: headers, and texts of messages.

Recorded texts may have open places, `<uid>` or `{server}`, that stand for something that differs from run to run.
"""

from __future__ import annotations

import re
from typing import Any

_HEADERS = ("warning", "www-authenticate", "retry-after", "location")
_OPEN = re.compile(r"<uid>|<rv>|<time>|<jwt>|<metrics>|<continue>|\{server\}")


def compare_heads(expected: dict[str, Any], status: int, headers: dict[str, str]) -> list[str]:
    differences = []
    if status != expected["status"]:
        differences.append(f"status {expected['status']} expected, {status} found")
    recorded = {"content-type": expected.get("contentType") or ""} | {
        name.lower(): value if isinstance(value, str) else ", ".join(value)
        for name, value in (expected.get("headers") or {}).items()
    }
    headers = {"content-type": "", **headers}
    return differences + [
        f"{name}: {recorded.get(name)!r} expected, {headers.get(name)!r} found"
        for name in (*_HEADERS, "content-type")
        if recorded.get(name) != headers.get(name)
    ]


def _matches(expected: str, found: Any) -> bool:
    pattern = ".+".join(re.escape(part) for part in _OPEN.split(expected))
    return isinstance(found, str) and re.fullmatch(pattern, found, re.DOTALL) is not None


def opened(expected: Any, found: Any) -> Any:
    """`expected` with texts that hold open places replaced by those found, where these fit."""
    if isinstance(expected, str):
        return found if _OPEN.search(expected) and _matches(expected, found) else expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: opened(value, found.get(key)) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [opened(one, other) for one, other in zip(expected, found, strict=True)]
    return expected


def texts(expected: Any, found: Any) -> list[str]:
    """Differences in what a refusal says, which `compare` leaves out."""
    if not isinstance(expected, dict) or expected.get("kind") != "Status" or not isinstance(found, dict):
        return []
    said = [(expected.get("message"), found.get("message"))]
    causes = [(each.get("details") or {}).get("causes") or [] for each in (expected, found)]
    said += [(one.get("message"), other.get("message")) for one, other in zip(*causes, strict=False)]
    return [
        f"{wanted!r} expected, {given!r} found"
        for wanted, given in said
        if wanted != given and not _matches(wanted or "", given)
    ]
