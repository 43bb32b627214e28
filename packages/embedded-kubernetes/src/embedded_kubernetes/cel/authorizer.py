"""The CEL variable `authorizer`, with which an expression checks permissions while it is evaluated.

cel-expr-python has no user-defined types, so the functions pass one another bytes: a check that is still
being built, or a decision. Function names and semantics are those of `Authz` in
k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import orjson

#: Checks a verb; returns whether it is allowed, and the reason. The mapping has either `path` or keys of
#: `PARTS`, and optionally `account`, a service account's namespace and name, which then replaces the user of
#: the request.
Ask = Callable[[Mapping[str, Any], str], tuple[bool, str]]
PARTS = ("group", "resource", "subresource", "namespace", "name")

#: `program.Program` sets this for the duration of one evaluation. Evaluations never overlap.
ASK: ContextVar[Ask | None] = ContextVar("ask", default=None)

#: The value of `authorizer`.
ROOT = b"{}"


def about(parts: Mapping[str, str]) -> bytes:
    """Return the value of `authorizer.requestResource` for these `PARTS`."""
    return orjson.dumps({name: value for name, value in parts.items() if value})


def _with(name: str) -> Callable[[bytes, str], bytes]:
    def added(question: bytes, value: str) -> bytes:
        if name in ("path", "resource") and not value.strip():
            raise ValueError(f"{name} must not be empty")
        return orjson.dumps({**orjson.loads(question), name: value})

    return added


def _account(question: bytes, namespace: str, name: str) -> bytes:
    # Imported here because the validation of built-in kinds imports `cel`.
    from ..builtin import names

    if names.subdomain(name):
        raise ValueError("Invalid service account name")
    if names.label(namespace):
        raise ValueError("Invalid service account namespace")
    return orjson.dumps({**orjson.loads(question), "account": [namespace, name]})


def _check(question: bytes, verb: str) -> bytes:
    ask = ASK.get()
    assert ask is not None, "expressions about rights are evaluated for a request"
    allowed, reason = ask(orjson.loads(question), verb)
    return orjson.dumps({"allowed": allowed, "reason": reason})


def _told(name: str) -> Callable[[bytes], Any]:
    return lambda decision: orjson.loads(decision)[name]


class Method(NamedTuple):
    """A function of Kubernetes' library. `parameters` counts the string parameters after the receiver."""

    name: str
    parameters: int
    result: str
    does: Callable[..., Any]


METHODS = (
    *(Method(name, 1, "opaque", _with(name)) for name in ("path", *PARTS)),
    Method("serviceAccount", 2, "opaque", _account),
    # Authorizers here ignore selectors.
    *(Method(name, 1, "opaque", lambda question, selector: question) for name in ("fieldSelector", "labelSelector")),
    Method("check", 1, "opaque", _check),
    Method("allowed", 0, "bool", _told("allowed")),
    Method("reason", 0, "string", _told("reason")),
    Method("errored", 0, "bool", lambda decision: False),
    Method("error", 0, "string", lambda decision: ""),
)
