"""The CEL environments of the API server: variables, functions and types.

There are two. Expressions are evaluated in one, where values of types that cel-expr-python lacks are bytes.
They are checked in the other, which declares the same types as kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apimachinery.celtypes import FUNCTIONS, hashable, types_of

from . import formats, library, lists
from .authorizer import METHODS
from .signatures import OF_PATCHES, OPAQUE, signatures

#: Variables of every expression, then those of policies only: `params`, `variables` and `namespaceObject`.
VARIABLES = ("object", "oldObject", "request", "params", "variables", "namespaceObject")
AUTHORIZER, REQUEST_RESOURCE = "authorizer", "authorizer.requestResource"

#: Fields with types that the checker knows. Each is declared as a variable, because the checker resolves the
#: longest declared name first.
_STRINGS = tuple(
    f"request.{path}"
    for path in (
        *(f"{kind}.{part}" for kind in ("kind", "requestKind") for part in ("group", "version", "kind")),
        *(f"{kind}.{part}" for kind in ("resource", "requestResource") for part in ("group", "version", "resource")),
        *("subResource", "requestSubResource", "name", "namespace", "operation"),
        *("userInfo.username", "userInfo.uid"),
    )
)
_NAMESPACE_STRINGS = tuple(
    f"namespaceObject.{path}"
    for path in (
        *(f"metadata.{name}" for name in ("name", "generateName", "namespace", "UID", "resourceVersion")),
        "status.phase",
    )
)


@lru_cache(maxsize=1)
def evaluating() -> Any:
    """Return the environment that evaluates expressions."""
    kind = _kinds()
    types = types_of(kind)
    overloads = _Overloads()
    every = (*FUNCTIONS, *library.FUNCTIONS, *lists.FUNCTIONS, *formats.FUNCTIONS)
    # Functions of this server replace library functions with the same name and parameters.
    for function in {(each.name, each.parameters): each for each in every}.values():
        parameters = [types[each] for each in function.parameters]
        overloads.add(function.name, parameters, types[function.result], function.is_method, function.does)
    for method in METHODS:
        parameters = [kind.BYTES, *[kind.STRING] * method.parameters]
        overloads.add(method.name, parameters, types[method.result], True, method.does)
    overloads.add("jsonpatch.escapeKey", [kind.STRING], kind.STRING, False, _escaped)
    variables = {**dict.fromkeys(VARIABLES, kind.DYN), AUTHORIZER: kind.BYTES, REQUEST_RESOURCE: kind.BYTES}
    return overloads.environment(variables)


@lru_cache(maxsize=256)
def checking(
    shapes: frozenset[str] = frozenset(), variables: tuple[tuple[str, str], ...] = (), *, patches: bool = False
) -> Any:
    """Return the environment that checks expressions.

    `shapes` are the types that the expression constructs, each declared as a function with the type's name.
    `variables` are a policy's variables with their type signatures. `patches` adds the functions that only
    mutations have.
    """
    kind = _kinds()
    overloads = _Overloads()
    for name, found in signatures():
        for one in found if patches or name not in OF_PATCHES else ():
            parameters = [_type(kind, each) for each in one.parameters]
            overloads.add(name, parameters, _type(kind, one.result), one.is_method, _unasked)
    for shape in shapes:
        made = kind.AbstractType(shape)
        overloads.add(shape, [kind.Map(kind.STRING, kind.DYN)], made, False, _unasked)
    return overloads.environment(
        {
            **dict.fromkeys(VARIABLES, kind.DYN),
            AUTHORIZER: _type(kind, "authorizer"),
            REQUEST_RESOURCE: _type(kind, "resourceCheck"),
            **_fields(kind),
            **{f"variables.{name}": _type(kind, signature) for name, signature in variables},
        }
    )


def _kinds() -> Any:
    # Imported here because the library loads slowly and most servers never evaluate an expression.
    from cel_expr_python import cel

    return cel.Type


def _type(kind: Any, signature: str) -> Any:
    """Return the CEL type of a signature such as `list<string>`, or of a key of `OPAQUE`."""
    name, _, inside = signature.partition("<")
    inside = inside[:-1]
    if name == "list":
        return kind.List(_type(kind, inside))
    if name == "map":
        key, _, value = inside.partition(",")
        return kind.Map(_type(kind, key), _type(kind, value))
    return kind.AbstractType(OPAQUE[name]) if name in OPAQUE else kind(name)


class _Overloads:
    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {}

    def add(self, name: str, parameters: list[Any], result: Any, member: bool, does: Any) -> None:
        from cel_expr_python import cel

        found = self._found.setdefault(name, [])
        identity = f"{name.replace('.', '_')}_{len(found)}"
        found.append(
            cel.Overload(identity, return_type=result, parameters=parameters, is_member=member, impl=_total(does))
        )

    def environment(self, variables: Mapping[str, Any]) -> Any:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings

        return cel.NewEnv(
            variables=dict(variables),
            extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
            functions=[cel.FunctionDecl(name, found) for name, found in self._found.items()],
        )


def _total(does: Any) -> Any:
    """Wrap a function so that arguments of the wrong type raise ValueError, which fails the expression."""
    call = hashable(does)

    def total(*given: Any) -> Any:
        try:
            return call(*given)
        except TypeError:
            raise ValueError("no such overload") from None

    return total


def _unasked(*given: Any) -> Any:
    raise AssertionError("expressions are not evaluated where they are checked")


def _fields(kind: Any) -> dict[str, Any]:
    words, texts = kind.List(kind.STRING), kind.Map(kind.STRING, kind.STRING)
    return {
        **dict.fromkeys((*_STRINGS, *_NAMESPACE_STRINGS), kind.STRING),
        "request.dryRun": kind.BOOL,
        "request.userInfo.groups": words,
        "request.userInfo.extra": kind.Map(kind.STRING, words),
        "namespaceObject.metadata.labels": texts,
        "namespaceObject.metadata.annotations": texts,
        "namespaceObject.metadata.finalizers": words,
        "namespaceObject.spec.finalizers": words,
        **dict.fromkeys(
            ("namespaceObject.metadata.creationTimestamp", "namespaceObject.metadata.deletionTimestamp"), kind.TIMESTAMP
        ),
        "namespaceObject.metadata.generation": kind.INT,
        "namespaceObject.metadata.deletionGracePeriodSeconds": kind.INT,
    }


def _escaped(key: str) -> str:
    """Return the name as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
