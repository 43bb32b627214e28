"""The variable `authorizer` of expressions: who may do what, asked while an expression is evaluated.

The library knows no types of ours, so what the functions hand to one another is encoded in bytes: a question as far as
it has been put, or a decision. Function names and their meaning are those of `Authz` in
k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import orjson

#: Whether a verb is allowed, and the reason: of a question's parts, `path` or those of `PARTS`, and perhaps of an
#: `account`, its namespace and name, in place of who made the request.
Ask = Callable[[Mapping[str, Any], str], tuple[bool, str]]
PARTS = ("group", "resource", "subresource", "namespace", "name")

#: Set for the time of one evaluation by `program.Program`, which no other interrupts.
ASK: ContextVar[Ask | None] = ContextVar("ask", default=None)

#: The value of `authorizer`.
ROOT = b"{}"


def about(parts: Mapping[str, str]) -> bytes:
    """The value of `authorizer.requestResource`, by `PARTS`."""
    return orjson.dumps({name: value for name, value in parts.items() if value})


def _with(name: str) -> Callable[[bytes, str], bytes]:
    def added(question: bytes, value: str) -> bytes:
        if name in ("path", "resource") and not value.strip():
            raise ValueError(f"{name} must not be empty")
        return orjson.dumps({**orjson.loads(question), name: value})

    return added


def _account(question: bytes, namespace: str, name: str) -> bytes:
    # Here, because what checks the built-in kinds imports expressions.
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
    """A function of the library of Kubernetes: `parameters` after the receiver, all of them strings."""

    name: str
    parameters: int
    result: str
    does: Callable[..., Any]


METHODS = (
    *(Method(name, 1, "opaque", _with(name)) for name in ("path", *PARTS)),
    Method("serviceAccount", 2, "opaque", _account),
    # Authorizers here do not go by selectors.
    *(
        Method(name, 1, "opaque", lambda question, selector: question)
        for name in ("fieldSelector", "labelSelector")
    ),
    Method("check", 1, "opaque", _check),
    Method("allowed", 0, "bool", _told("allowed")),
    Method("reason", 0, "string", _told("reason")),
    Method("errored", 0, "bool", lambda decision: False),
    Method("error", 0, "string", lambda decision: ""),
)
