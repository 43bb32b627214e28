"""Compares an answer with the recorded one: status, reason, and every field of every object.

These may differ: volatile values (`<uid>`, `<rv>`, `<time>`, `<continue>` in the recording), generated name suffixes,
ages in tables, and the texts of messages. In discovery only served kinds are compared.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

_VOLATILE = {"<uid>", "<rv>", "<time>", "<continue>"}
_AGE = re.compile(r"(\d+[smhdy])+|<invalid>|<unknown>")
_HEADERS = ("warning", "www-authenticate", "retry-after", "location")
_OPEN = re.compile(r"<uid>|<rv>|<time>|<jwt>|<metrics>|<continue>|\{server\}")

Differences = list[str]


async def collected(differences: Awaitable[Differences]) -> Differences:
    """Return the differences, or the error that prevented the comparison."""
    try:
        return await differences
    except (AssertionError, KeyError, ValueError, TimeoutError) as error:
        return [f"{type(error).__name__}: {error}"]


def compare(expected: Any, found: Any, where: str = "") -> Differences:
    """Return the differences, one text for each place; empty if the answer agrees."""
    if isinstance(expected, str) and expected in _VOLATILE:
        return [] if isinstance(found, str) and found else [f"{where}: {expected} is {found!r}"]
    if isinstance(expected, dict) and isinstance(found, dict):
        special = _special(expected, found, where)
        return _fields(expected, found, where) if special is None else special
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [
                f"{where}: {len(expected)} entries expected, {len(found)} found: {_names(expected)} {_names(found)}"
            ]
        return [
            text
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for text in compare(one, other, f"{where}[{index}]")
        ]
    if type(expected) is not type(found) or expected != found:
        return [f"{where}: {expected!r} expected, {found!r} found"]
    return []


def _names(objects: list[Any]) -> list[str]:
    return [entry.get("metadata", {}).get("name", "?") if isinstance(entry, dict) else str(entry) for entry in objects]


def _fields(
    expected: dict[str, Any], found: dict[str, Any], where: str, *, skip: frozenset[str] = frozenset()
) -> Differences:
    skip |= {"managedFields"}
    texts = [f"{where}.{key}: missing" for key in expected if key not in found and key not in skip]
    texts += [f"{where}.{key}: {found[key]!r} not expected" for key in found if key not in expected and key not in skip]
    for key, value in expected.items():
        if key in found and key not in skip:
            texts += compare(value, found[key], f"{where}.{key}")
    return texts


def _special(expected: dict[str, Any], found: dict[str, Any], where: str) -> Differences | None:
    """Return the differences of objects that are compared by special rules; None for all others."""
    kind = expected.get("kind")
    if kind == "Status" and expected.get("status") == "Failure":
        return _fields(_without_texts(expected), _without_texts(found), where)
    if kind == "Table":
        return _fields(_without_ages(expected), _without_ages(found), where)
    if kind == "APIResourceList":
        return _served(expected, found, where, list_name="resources", key="name")
    if kind == "APIGroupList":
        return _served(expected, found, where, list_name="groups", key="name")
    if kind == "APIVersions":
        return _fields(expected, found, where, skip=frozenset({"serverAddressByClientCIDRs"}))
    if kind == "APIGroupDiscoveryList":
        return _aggregated(expected, found, where)
    if "generateName" in expected and "name" in expected:
        prefix = expected["generateName"]
        if not str(found.get("name", "")).startswith(prefix):
            return [f"{where}.name: {found.get('name')!r} does not begin with {prefix}"]
        return _fields(expected, found, where, skip=frozenset({"name"}))
    return None


def _without_texts(status: dict[str, Any]) -> dict[str, Any]:
    details = status.get("details")
    if details is not None:
        causes = [{key: cause.get(key) for key in ("reason", "field")} for cause in details.get("causes", ())]
        details = {**details, "causes": causes}
    return {**status, "message": "", "details": details}


def _without_ages(table: dict[str, Any]) -> dict[str, Any]:
    ages = [column["name"].lower() == "age" for column in table["columnDefinitions"]]

    def shown(age: bool, cell: Any) -> Any:
        return "<age>" if age and _AGE.fullmatch(str(cell)) else cell

    rows = [{**row, "cells": [shown(*each) for each in zip(ages, row["cells"], strict=True)]} for row in table["rows"]]
    return {**table, "rows": rows}


def _served(expected: dict[str, Any], found: dict[str, Any], where: str, *, list_name: str, key: str) -> Differences:
    """Return the differences of a discovery list's served entries and of their order from the recording."""
    texts = _fields(expected, found, where, skip=frozenset({list_name}))
    recorded = {entry[key]: entry for entry in expected[list_name]}
    served = [entry for entry in found.get(list_name, ()) if entry[key] in recorded]
    if not served:
        texts.append(f"{where}.{list_name}: nothing that was recorded is served")
    order = [name for name in recorded if name in {entry[key] for entry in served}]
    if order != [entry[key] for entry in served]:
        texts.append(f"{where}.{list_name}: not in the recorded order")
    for entry in served:
        wanted = dict(recorded[entry[key]])
        known = {below["subresource"] for below in entry.get("subresources", ())}
        kept = [below for below in wanted.pop("subresources", ()) if below["subresource"] in known]
        if kept:
            wanted["subresources"] = kept
        texts += compare(wanted, entry, f"{where}.{list_name}[{entry[key]}]")
    extra = [entry[key] for entry in found.get(list_name, ()) if entry[key] not in recorded]
    if extra:
        texts.append(f"{where}.{list_name}: not in the recording: {extra}")
    return texts


def _aggregated(expected: dict[str, Any], found: dict[str, Any], where: str) -> Differences:
    texts = _fields(expected, found, where, skip=frozenset({"items"}))
    recorded = {item["metadata"].get("name", ""): item for item in expected["items"]}
    for item in found.get("items", ()):
        name = item["metadata"].get("name", "")
        if name not in recorded:
            texts.append(f"{where}.items: {name} is not in the recording")
            continue
        versions = {version["version"]: version for version in recorded[name]["versions"]}
        for version in item["versions"]:
            wanted = versions[version["version"]]
            at = f"{where}.items[{name}]"
            texts += _served(wanted, version, at, list_name="resources", key="resource")
    return texts


# ---- The parts that `compare` leaves out, for recordings that are matched word for word: headers and messages.
# Recorded texts may have placeholders, such as `<uid>` or `{server}`, for parts that differ between runs.


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
    """Return `expected` with texts that have placeholders replaced by the found ones, if these match."""
    if isinstance(expected, str):
        return found if _OPEN.search(expected) and _matches(expected, found) else expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: opened(value, found.get(key)) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [opened(one, other) for one, other in zip(expected, found, strict=True)]
    return expected


def texts(expected: Any, found: Any) -> list[str]:
    """Return the differences in the texts of a refusal, which `compare` leaves out."""
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
