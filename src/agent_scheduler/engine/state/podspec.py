"""Decodes and validates the parts of a pod's spec that stay bytes until a class is compiled.

The API server has validated the pods that it stores. A pod that was stored by another version, or by an extension, may
still have values that are unknown here. Such a pod is rejected with the field's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from agent_scheduler.objects import wire
from apimachinery.nesting import TOO_DEEP
from apimachinery.salvage import salvage_part

_TOLERATION_OPERATORS = ("Exists", "Equal", "Lt", "Gt")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

#: apimachinery's rule for values of labels, with its wording.
_LABEL_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LABEL_VALUE_LENGTH: Final = 63
_NO_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{_LABEL_VALUE}')"
)
_is_label_value: Final = re.compile(_LABEL_VALUE).fullmatch


class SpecError(ValueError):
    """An invalid pod spec; the message names the field and the allowed values."""


def decode_part(decoder: msgspec.json.Decoder[Any], raw: Raw, place: str) -> Any:
    data = bytes(raw)
    if not data:
        return None
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise SpecError(f"{place}: {error}") from None
    except RecursionError:
        raise SpecError(f"{place}: {TOO_DEEP}") from None


def readable_part(decoder: msgspec.json.Decoder[Any], raw: Raw, place: str, problems: list[str]) -> Any:
    """Decode a part like `decode_part`, but keep the valid fields of an invalid one; add its error to `problems`."""
    try:
        return decode_part(decoder, raw, place)
    except SpecError as error:
        problems.append(str(error))
        return salvage_part(raw, decoder.type)


def check_word(word: str, allowed: tuple[str, ...], place: str) -> None:
    """Raise `SpecError` if a word is not among those `allowed`."""
    if word not in allowed:
        raise SpecError(f"{place}: {word!r} is unknown; allowed: {', '.join(allowed)}")


def check_tolerations(tolerations: tuple[wire.Toleration, ...]) -> None:
    for index, toleration in enumerate(tolerations):
        place = f"spec.tolerations[{index}]"
        if toleration.operator:
            check_word(toleration.operator, _TOLERATION_OPERATORS, f"{place}.operator")
        if toleration.effect:
            check_word(toleration.effect, _EFFECTS, f"{place}.effect")


def check_node_affinity(affinity: wire.NodeAffinity | None, place: str, *, sound_values: bool = True) -> None:
    """Raise `SpecError` for the first invalid requirement.

    With `sound_values`, Gt and Lt without an integer are invalid. The API server stores pods with such terms.
    """
    if affinity is None:
        return
    terms = [
        (term, f"{place}.required.nodeSelectorTerms[{index}]")
        for index, term in enumerate((affinity.required.node_selector_terms or ()) if affinity.required else ())
    ] + [
        (preferred.preference, f"{place}.preferred[{index}].preference")
        for index, preferred in enumerate(affinity.preferred or ())
    ]
    for term, where in terms:
        for name, requirements, operators in (
            ("matchExpressions", term.match_expressions, _NODE_OPERATORS),
            ("matchFields", term.match_fields, _FIELD_OPERATORS),
        ):
            for index, requirement in enumerate(requirements or ()):
                check_requirement(requirement, f"{where}.{name}[{index}]", operators, sound_values=sound_values)
                if name == "matchFields" and requirement.key != "metadata.name":
                    raise SpecError(
                        f"{where}.{name}[{index}].key: {requirement.key!r} is not selectable; allowed: metadata.name"
                    )


def check_requirement(
    requirement: wire.SelectorRequirement, place: str, operators: tuple[str, ...], *, sound_values: bool = True
) -> None:
    """Raise `SpecError` if the requirement is invalid. `sound_values` is as in `check_node_affinity`."""
    operator, values = requirement.operator, requirement.values or []
    check_word(operator, operators, f"{place}.operator")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SpecError(f"{place}.values: must be empty with operator {operator}")
    if operator in ("In", "NotIn") and not values:
        raise SpecError(f"{place}.values: at least one value is needed with operator {operator}")
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise SpecError(f"{place}.values: exactly one value is needed with operator {operator}")
        if sound_values and parse_int(values[0]) is None:
            raise SpecError(f"{place}.values[0]: {values[0]!r} is not an integer, which {operator} needs")


def faults_of(term: wire.NodeSelectorTerm, place: str = "") -> list[str]:
    """Return kube-scheduler's errors about values of a term that the API server accepts, in its wording.

    They are Gt and Lt without an integer, and invalid values of labels. A term with such an error matches no node.
    """
    return [
        f"{place}.matchExpressions[{index}].values[{number}]: Invalid value: "
        f"{json.dumps(value, ensure_ascii=False)}: {fault}"
        for index, requirement in enumerate(term.match_expressions or ())
        for number, value in enumerate(requirement.values or ())
        for fault in _faults_of_value(requirement.operator, value)
    ]


def _faults_of_value(operator: str, value: str) -> Iterator[str]:
    if operator in ("Gt", "Lt") and parse_int(value) is None:
        yield "for 'Gt', 'Lt' operators, the value must be an integer"
    found = []
    if len(value) > _LABEL_VALUE_LENGTH:
        found.append(f"must be no more than {_LABEL_VALUE_LENGTH} bytes")
    if _is_label_value(value) is None:
        found.append(_NO_LABEL_VALUE)
    if found:
        yield "; ".join(found)


#: A requirement that no node satisfies.
_NEVER: Final = [wire.SelectorRequirement("", "In")]


def with_void_terms(affinity: wire.NodeAffinity | None) -> wire.NodeAffinity | None:
    """Return the affinity with each faulty required term replaced by one that matches no node.

    The `matchFields` of these terms stay, since kube-scheduler preselects nodes by the names in them.
    """
    required = affinity.required if affinity else None
    if affinity is None or required is None:
        return affinity
    terms = required.node_selector_terms or []
    if not any(map(faults_of, terms)):
        return affinity
    void = [msgspec.structs.replace(term, match_expressions=_NEVER) if faults_of(term) else term for term in terms]
    return msgspec.structs.replace(affinity, required=wire.NodeSelector(void))


def parse_int(text: str) -> int | None:
    """Parse a signed decimal as Go's `ParseInt(text, 10, 64)` does; None if that fails."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0")
    # Python's int() raises ValueError for thousands of digits.
    number = int(digits or "0") if len(digits) < 20 else 2**64
    number = -number if text[0] == "-" else number
    return number if -(2**63) <= number < 2**63 else None
