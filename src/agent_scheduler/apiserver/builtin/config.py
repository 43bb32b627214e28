"""ConfigMaps, Secrets, ServiceAccounts, and the limits of namespaces, which are stored but not enforced."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode

from ..errors import Cause
from ..resource import Object, Resource, Subresource
from . import names
from .amounts import check_amount
from .causes import forbidden, immutable, invalid, required, too_long
from .kind import builtin

_MAX_DATA = 1024 * 1024
_OPAQUE = "Opaque"
#: Keys that a secret of a type must have.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _check_config_map(config: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    total = 0
    for field, entries in (("data", data), ("binaryData", binary)):
        for key, value in entries.items():
            causes += [invalid(f"{field}[{key}]", key, problem) for problem in names.config_key(key)]
            total += len(value.encode()) if field == "data" else len(value) * 3 // 4
    causes += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in data
        if key in binary
    ]
    if total > _MAX_DATA:
        causes.append(too_long("", _MAX_DATA))
    if old is not None and old.get("immutable"):
        causes += _check_frozen(config, old, ("data", "binaryData"))
    return causes


def _check_frozen(obj: Object, old: Object, fields: tuple[str, ...]) -> list[Cause]:
    detail = "field is immutable when `immutable` is set"
    causes = [] if obj.get("immutable") else [forbidden("immutable", detail)]
    return causes + [
        forbidden(field, detail) for field in fields if (obj.get(field) or {}) != (old.get(field) or {})
    ]


def _default_secret(secret: Object) -> None:
    if not secret.get("type"):
        secret["type"] = _OPAQUE
    if texts := secret.pop("stringData", None):
        data = dict(secret.get("data") or {})
        data |= {key: b64encode(value.encode()).decode() for key, value in texts.items()}
        secret["data"] = data


def _check_secret(secret: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    data = secret.get("data") or {}
    total = 0
    for key, value in data.items():
        causes += [invalid(f"data[{key}]", key, problem) for problem in names.config_key(key)]
        total += len(value or "") * 3 // 4
    if total > _MAX_DATA:
        causes.append(too_long("data", _MAX_DATA))
    kind = secret.get("type", "")
    causes += [required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        causes += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token" and not (
        secret["metadata"].get("annotations") or {}
    ).get("kubernetes.io/service-account.name"):
        causes.append(required("metadata.annotations[kubernetes.io/service-account.name]"))
    if kind == "kubernetes.io/dockerconfigjson" and ".dockerconfigjson" in data:
        causes += _check_json(data[".dockerconfigjson"], "data[.dockerconfigjson]")
    if old is not None:
        if kind != old.get("type"):
            causes.append(immutable("type", kind))
        if old.get("immutable"):
            causes += _check_frozen(secret, old, ("data",))
    return causes


def _check_json(text: str, path: str) -> list[Cause]:
    try:
        json.loads(b64decode(text or ""))
    except (ValueError, binascii.Error) as error:
        return [invalid(path, "<secret contents redacted>", str(error))]
    return []


def _secret_fields(secret: Object) -> dict[str, str]:
    return {"type": secret.get("type", "")}


def _default_limits(limits: Object) -> None:
    """A container's default limit is the maximum, its default request the default limit or the minimum."""
    for item in (limits.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            most, least = item.get("max") or {}, item.get("min") or {}
            default = dict(most) | dict(item.get("default") or {})
            request = dict(least) | default | dict(item.get("defaultRequest") or {})
            if default:
                item["default"] = default
            if request:
                item["defaultRequest"] = request


def _check_quota(quota: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    for name, amount in ((quota.get("spec") or {}).get("hard") or {}).items():
        causes += check_amount(name, amount, f"spec.hard[{name}]")
    return causes


CONFIG: tuple[Resource, ...] = (
    builtin(
        group="",
        version="v1",
        kind="ConfigMap",
        plural="configmaps",
        namespaced=True,
        short_names=("cm",),
        check=_check_config_map,
    ),
    builtin(
        group="",
        version="v1",
        kind="Secret",
        plural="secrets",
        namespaced=True,
        default=_default_secret,
        check=_check_secret,
        field_names=("type",),
        fields=_secret_fields,
    ),
    builtin(
        group="",
        version="v1",
        kind="ServiceAccount",
        plural="serviceaccounts",
        namespaced=True,
        short_names=("sa",),
        subresources=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),),
        returns_deleted=True,
    ),
    builtin(
        group="",
        version="v1",
        kind="LimitRange",
        rechecks="whole",
        plural="limitranges",
        namespaced=True,
        short_names=("limits",),
        default=_default_limits,
    ),
    builtin(
        group="",
        version="v1",
        kind="ResourceQuota",
        rechecks="change",
        plural="resourcequotas",
        namespaced=True,
        short_names=("quota",),
        check=_check_quota,
        status=True,
        first_status={},
        returns_deleted=True,
    ),
)
