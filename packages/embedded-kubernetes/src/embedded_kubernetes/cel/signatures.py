"""The functions that Kubernetes adds to CEL, with their types, for the checker.

Expressions are evaluated with bytes for values of these types, because cel-expr-python has no user-defined
types. Type errors and result types come from the signatures here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .formats import NAMES as _FORMATS
from .macros import OWN

#: Names of opaque types, keyed by the word for the type in signatures.
OPAQUE = {
    "quantity": "kubernetes.Quantity",
    "version": "kubernetes.Semver",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "format": "kubernetes.NamedFormat",
    "authorizer": "kubernetes.authorization.Authorizer",
    "pathCheck": "kubernetes.authorization.PathCheck",
    "groupCheck": "kubernetes.authorization.GroupCheck",
    "resourceCheck": "kubernetes.authorization.ResourceCheck",
    "decision": "kubernetes.authorization.Decision",
}

#: Functions that exist only in expressions of mutations.
OF_PATCHES = frozenset({"jsonpatch.escapeKey"})

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE = ("int", "uint", "double", "duration")

#: Overloads of each function: parameter types (a method's receiver first), `=` and the result type.
_FUNCTIONS = {
    "isQuantity": "string = bool",
    "quantity": "string = quantity",
    "isSemver": "string = bool; string bool = bool",
    "semver": "string = version; string bool = version",
    "isURL": "string = bool",
    "url": "string = url",
    "isIP": "string = bool",
    "ip.isCanonical": "string = bool",
    "isCIDR": "string = bool",
    "cidr": "string = cidr",
    "lists.range": "int = list<int>",
    "format.named": "string = list<format>",
    **{f"sets.{name}": "list<dyn> list<dyn> = bool" for name in ("contains", "equivalent", "intersects")},
    **{f"format.{name}": "= format" for name in _FORMATS},
    "jsonpatch.escapeKey": "string = string",
    f"{OWN}list": "list<dyn> = list<dyn>",
    f"{OWN}slice": "int int = bool",
}
_ORDERED = "quantity quantity = {0}; version version = {0}"
_METHODS = {
    "isInteger": "quantity = bool",
    "asInteger": "quantity = int",
    "asApproximateFloat": "quantity = double",
    "sign": "quantity = int",
    **dict.fromkeys(("add", "sub"), "quantity quantity = quantity; quantity int = quantity"),
    "compareTo": _ORDERED.format("int"),
    **{name: _ORDERED.format("bool") for name in ("isLessThan", "isGreaterThan")},
    **dict.fromkeys(("major", "minor", "patch"), "version = int"),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), "url = string"),
    "getQuery": "url = map<string,list<string>>",
    "family": "ip = int",
    **{
        f"is{name}": "ip = bool"
        for name in ("Unspecified", "Loopback", "LinkLocalMulticast", "LinkLocalUnicast", "GlobalUnicast")
    },
    **{f"contains{name}": f"cidr {name.lower()} = bool; cidr string = bool" for name in ("IP", "CIDR")},
    "masked": "cidr = cidr",
    "prefixLength": "cidr = int",
    "validate": "format string = list<list<string>>",
    "find": "string string = string",
    "findAll": "string string = list<string>; string string int = list<string>",
    "path": "authorizer string = pathCheck",
    "group": "authorizer string = groupCheck",
    "serviceAccount": "authorizer string string = authorizer",
    "resource": "groupCheck string = resourceCheck",
    **dict.fromkeys(
        ("subresource", "namespace", "name", "fieldSelector", "labelSelector"), "resourceCheck string = resourceCheck"
    ),
    "check": "pathCheck string = decision; resourceCheck string = decision",
    **dict.fromkeys(("allowed", "errored"), "decision = bool"),
    **dict.fromkeys(("reason", "error"), "decision = string"),
    "isSorted": "; ".join(f"list<{kind}> = bool" for kind in _COMPARABLE),
    "sum": "; ".join(f"list<{kind}> = {kind}" for kind in _SUMMABLE),
    **{name: "; ".join(f"list<{kind}> = {kind}" for kind in _COMPARABLE) for name in ("min", "max")},
    "sort": "; ".join(f"list<{kind}> = list<{kind}>" for kind in _COMPARABLE),
    "flatten": "list<dyn> int = list<dyn>",
    f"{OWN}reverse": "list<dyn> = list<dyn>",
    **{
        f"{OWN}{name}": "list<dyn> dyn = int; string string = int; string string int = int"
        for name in ("indexOf", "lastIndexOf")
    },
    f"{OWN}pairs": "list<dyn> = list<list<dyn>>; map<dyn,dyn> = list<list<dyn>>",
    **{f"{OWN}{name}": "list<dyn> = map<dyn,dyn>" for name in ("mapped", "merged")},
}
#: Names that are both a function and a method.
_BOTH = {"ip": ("string = ip", "cidr = ip")}


class Signature(NamedTuple):
    parameters: tuple[str, ...]
    result: str
    is_method: bool


def signatures() -> Iterator[tuple[str, list[Signature]]]:
    """Yield every function with its overloads."""
    for name, text in _FUNCTIONS.items():
        yield name, list(_read(text, is_method=False))
    for name, text in _METHODS.items():
        yield name, list(_read(text, is_method=True))
    for name, (function, method) in _BOTH.items():
        yield name, [*_read(function, is_method=False), *_read(method, is_method=True)]


def _read(text: str, *, is_method: bool) -> Iterator[Signature]:
    for overload in text.split("; "):
        *parameters, _, result = overload.split()
        yield Signature(tuple(parameters), result, is_method)


_PLAIN = frozenset((*_COMPARABLE, "list", "map"))
_LONG = {"google.protobuf.Duration": "duration", "google.protobuf.Timestamp": "timestamp"}


def variable_type(result: str) -> str:
    """Return the type signature of a policy's variable whose expression has this type in cel-go's wording.

    Types other than plain types, and lists and maps of them, become `dyn`.
    """

    def word(match: re.Match[str]) -> str:
        name = _LONG.get(match[0], match[0])
        return name if name in _PLAIN else "dyn"

    if re.search(r"(?<!list)(?<!map)\(", result):
        return "dyn"
    return re.sub(r"[\w.]+", word, result).replace("(", "<").replace(")", ">").replace(" ", "")
