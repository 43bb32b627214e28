"""ConfigMaps, Secrets, ServiceAccounts, LimitRanges and ResourceQuotas. Limits and quotas are not enforced."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from apimachinery.quantity import milli_value

from ..errors import Cause
from ..resource import Object
from . import names
from .amounts import check_amount, check_container_resource, check_quota_name, check_resource_name
from .causes import check_format, duplicate, forbidden, immutable, invalid, required, too_long
from .kind import Logic

_MAX_DATA = 1024 * 1024
_OPAQUE = "Opaque"
#: The standard types of a limit range.
_LIMITED = frozenset({"Pod", "Container", "PersistentVolumeClaim"})
#: Required keys by type of secret.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _check_config_map(config: Object, old: Object | None) -> Iterator[Cause]:
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    total = 0
    if old is not None and old.get("immutable"):
        yield from _check_frozen(config, old, ("data", "binaryData"))
    for field, entries in (("data", data), ("binaryData", binary)):
        for key, value in entries.items():
            yield from check_format(f"{field}[{key}]", key, names.config_key)
            if field == "data" and key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            total += len(value.encode()) if field == "data" else len(value) * 3 // 4
    if total > _MAX_DATA:
        yield too_long("[]", _MAX_DATA)


def _check_frozen(obj: Object, old: Object, fields: tuple[str, ...]) -> Iterator[Cause]:
    detail = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        yield forbidden("immutable", detail)
    yield from (forbidden(field, detail) for field in fields if (obj.get(field) or {}) != (old.get(field) or {}))


def _default_secret(secret: Object) -> None:
    if not secret.get("type"):
        secret["type"] = _OPAQUE
    if texts := secret.pop("stringData", None):
        data = dict(secret.get("data") or {})
        data |= {key: b64encode(value.encode()).decode() for key, value in texts.items()}
        secret["data"] = data


def _check_secret(secret: Object, old: Object | None) -> Iterator[Cause]:
    if old is not None:
        if secret.get("type", "") != old.get("type"):
            yield immutable("type", secret.get("type", ""))
        if old.get("immutable"):
            yield from _check_frozen(secret, old, ("data",))
    data = secret.get("data") or {}
    total = 0
    for key, value in data.items():
        yield from check_format(f"data[{key}]", key, names.config_key)
        total += len(value or "") * 3 // 4
    if total > _MAX_DATA:
        yield too_long("data", _MAX_DATA)
    kind = secret.get("type", "")
    yield from (required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data)
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token" and not (secret["metadata"].get("annotations") or {}).get(
        "kubernetes.io/service-account.name"
    ):
        yield required("metadata.annotations[kubernetes.io/service-account.name]")
    for held in ("dockerconfigjson", "dockercfg"):
        if kind == f"kubernetes.io/{held}" and f".{held}" in data:
            yield from _check_json(data[f".{held}"], f"data[.{held}]")


def _check_json(text: str, path: str) -> Iterator[Cause]:
    try:
        json.loads(b64decode(text or ""))
    except (ValueError, binascii.Error) as error:
        yield invalid(path, "<secret contents redacted>", str(error))
        return


def _default_limits(limits: Object) -> None:
    """Default a container's limit to the maximum, and its request to the default limit or the minimum."""
    for item in (limits.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            most, least = item.get("max") or {}, item.get("min") or {}
            default = dict(most) | dict(item.get("default") or {})
            request = dict(least) | default | dict(item.get("defaultRequest") or {})
            if default:
                item["default"] = default
            if request:
                item["defaultRequest"] = request


def _check_limits(limits: Object, old: Object | None) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate((limits.get("spec") or {}).get("limits") or ()):
        at, kind = f"spec.limits[{index}]", item.get("type", "")
        if problems := names.qualified(kind):
            yield from (invalid(f"{at}.type", kind, problem) for problem in problems)
        elif "/" not in kind and kind not in _LIMITED:
            yield invalid(f"{at}.type", kind, "must be a standard limit type or fully qualified")
        if kind in seen:
            yield duplicate(f"{at}.type", kind)
        seen.add(kind)
        yield from _check_limit_names(item, at)
        yield from _check_limit_amounts(item, at)


def _check_limit_names(item: dict[str, Any], at: str) -> Iterator[Cause]:
    kind = item.get("type", "")
    rule = check_container_resource if kind in ("Pod", "Container") else check_resource_name
    for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        amounts = item.get(field) or {}
        if kind == "Pod" and field.startswith("default"):
            if amounts:
                yield forbidden(f"{at}.{field}", "may not be specified when `type` is 'Pod'")
            continue
        bounded = any("storage" in (item.get(bound) or {}) for bound in ("min", "max"))
        if field == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim" and not bounded:
            detail = "either minimum or maximum storage value is required, but neither was provided"
            yield required(f"{at}.limits", detail)
        for name in amounts:
            yield from rule(name, f"{at}.{field}[{name}]")


def _check_limit_amounts(item: dict[str, Any], at: str) -> Iterator[Cause]:
    """Check the order of the bounds of each resource."""
    fields = ("min", "max", "default", "defaultRequest")
    bounds = {field: item.get(field) or {} for field in fields}
    if item.get("type") == "Pod":
        bounds["default"] = bounds["defaultRequest"] = {}
    every = dict.fromkeys(name for field in ("max", "min", "default", "defaultRequest") for name in bounds[field])
    for name in every:
        for low, high, bound in (
            ("min", "max", "min"),
            ("min", "defaultRequest", "defaultRequest"),
            ("defaultRequest", "max", "defaultRequest"),
            ("defaultRequest", "default", "defaultRequest"),
            ("min", "default", "default"),
            ("default", "max", "default"),
        ):
            less, more = bounds[low].get(name), bounds[high].get(name)
            if less is not None and more is not None and milli_value(less) > milli_value(more):
                detail = f"{low} value {less} is greater than {high} value {more}"
                yield invalid(f"{at}.{bound}[{name}]", bounds[bound][name], detail)
        ratio = (item.get("maxLimitRequestRatio") or {}).get(name)
        if ratio is not None and milli_value(ratio) < 1000:
            yield invalid(f"{at}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")


def _check_quota(quota: Object, old: Object | None) -> Iterator[Cause]:
    spec = quota.get("spec") or {}
    for name, amount in (spec.get("hard") or {}).items():
        yield from check_quota_name(name, f"spec.hard[{name}]")
        yield from check_amount(name, amount, f"spec.hard[{name}]")
    if old is not None and set(spec.get("scopes") or ()) != set((old.get("spec") or {}).get("scopes") or ()):
        yield immutable("spec.scopes", spec.get("scopes"))


LOGIC = {
    ("", "ConfigMap"): Logic(check=_check_config_map),
    ("", "Secret"): Logic(default=_default_secret, check=_check_secret),
    ("", "LimitRange"): Logic(default=_default_limits, check=_check_limits),
    ("", "ResourceQuota"): Logic(check=_check_quota),
}
