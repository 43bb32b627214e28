"""CEL expressions about devices: compiled once, bounded in cost, and evaluated once for each kind of device.

The language is that of cel-expr-python, the CEL project's own implementation, with Kubernetes' additions for devices:
`device` with its `driver`, `attributes`, `capacity` and `allowMultipleAllocations`, quantities, versions, and the
functions of lists and sets. Bindings and optional values are extensions of the library.

The library has no custom types at run time, so a quantity is a byte string that begins with `q`, a version one that
begins with `v`, each encoded so that equal values are equal strings. No attribute is a byte string otherwise.

Cost is bounded four times: by the length of an expression and by its estimated worst case (`celcost`), both before it
is ever run; by the library, which stops after 10,000 iterations of loops and matches regular expressions in linear
time; and by the cache of answers, so that an expression runs once for equal devices and not once for each pod.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from apimachinery.celtypes import FUNCTIONS, hashable, quantity_value, types_of, version_value

from .celcost import check_cost
from .devices import Attribute, Facts

#: `CELSelectorExpressionMaxLength`.
MAX_LENGTH: Final = 10 * 1024
#: Compiled expressions that are kept; they come from users.
COMPILED_KEPT: Final = 4096
#: Domains without attributes of a device that one expression may access.
_DOMAINS: Final = 16

_missing: Final = re.compile(r'Key not found in map : "(.*)"', re.DOTALL).search
#: The prefix of the library's errors.
_status: Final = re.compile(r"^[A-Z_]+: ")


class CelError(ValueError):
    """The error of an expression or of its evaluation for a device; in kube-scheduler's words."""


class Selector:
    """One expression. Evaluating it never raises anything but `CelError`."""

    __slots__ = ("_compiled", "error")

    def __init__(self, expression: str) -> None:
        #: The reason why it cannot be evaluated; empty for a valid one.
        self.error = ""
        self._compiled: Any = None
        if len(expression.encode()) > MAX_LENGTH:
            self.error = f"expression is longer than {MAX_LENGTH} bytes"
            return
        environment = _environment()
        try:
            compiled = environment.compile(expression)
            check_cost(compiled.serialize())
        except (RuntimeError, ValueError, RecursionError) as error:
            self.error = _words(str(error))
            return
        result = compiled.return_type().name()
        if result not in ("BOOL", "DYN"):
            self.error = f"must evaluate to bool or the unknown type, not {result.lower()}"
            return
        self._compiled = compiled

    def matches(self, facts: Facts) -> bool:
        """Return whether the expression matches. Raises `CelError`."""
        if self._compiled is None:
            raise CelError(f"CEL compile error: {self.error}")
        device = _variables(facts)
        problem = ""
        for _ in range(_DOMAINS):
            found = self._ask(device)
            if isinstance(found, bool):
                return found
            problem = found
            missing = _missing(found)
            if missing is None or (missing[1] in device["attributes"] and missing[1] in device["capacity"]):
                break
            # A domain without attributes is an empty map; the library would report a missing key.
            device = {
                **device,
                "attributes": {missing[1]: {}, **device["attributes"]},
                "capacity": {missing[1]: {}, **device["capacity"]},
            }
        raise CelError(f"CEL runtime error: {_words(problem)}")

    def _ask(self, device: dict[str, Any]) -> bool | str:
        """Return the result, or the library's error."""
        try:
            result = self._compiled.eval(data={"device": device})
            kind, value = result.type().name(), result.value()
        except Exception as error:
            # The library or one of our functions may raise any error for a driver's data.
            return str(error)
        if kind == "BOOL":
            return bool(value)
        if kind == "ERROR":
            return str(value)
        return f"CEL result of type {kind.lower()} could not be converted to bool"


@lru_cache(maxsize=COMPILED_KEPT)
def selector(expression: str) -> Selector:
    """Return the compiled expression, which may be one with an error."""
    return Selector(expression)


def _words(text: str) -> str:
    """Return the library's error in the words of cel-go, which kube-scheduler's users know."""
    missing = _missing(text)
    if missing is not None:
        return f"no such key: {missing[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    return " ".join(_status.sub("", text).split())


@lru_cache(maxsize=1)
def _environment() -> Any:
    # Imported here because most clusters have no expression about a device, and the library takes long to load.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    kind = cel.Type
    types = types_of(kind)
    declared: dict[str, list[Any]] = {}
    for function in FUNCTIONS:
        declared.setdefault(function.name, []).append(
            cel.Overload(
                f"{function.name}_{'_'.join(function.parameters)}",
                return_type=types[function.result],
                parameters=[types[each] for each in function.parameters],
                is_member=function.is_method,
                impl=hashable(function.does),
            )
        )
    return cel.NewEnv(
        variables={"device": kind.Map(kind.STRING, kind.DYN)},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_math.ExtMath(),
        ],
        functions=[cel.FunctionDecl(name, overloads) for name, overloads in declared.items()],
    )


def _variables(facts: Facts) -> dict[str, Any]:
    device: dict[str, Any] | None = facts.seen
    if device is not None:
        return device
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, attribute in facts.attributes.items():
        domain, identifier = _split(name, facts.driver)
        attributes.setdefault(domain, {})[identifier] = _value(name, attribute)
    for name, each in facts.capacity.items():
        domain, identifier = _split(name, facts.driver)
        capacity.setdefault(domain, {})[identifier] = quantity_value(each.value.nano)
    device = facts.seen = {
        "driver": facts.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": facts.shared,
    }
    return device


def _value(name: str, attribute: Attribute) -> Any:
    if attribute.kind == "version":
        found = version_value(attribute.value)
        if found is None:
            raise CelError(f"CEL runtime error: attribute {name}: {attribute.value!r} is not a semantic version")
        return found
    if not attribute.kind:
        raise CelError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    return attribute.value


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)
