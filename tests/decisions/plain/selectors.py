"""Label selectors and node selectors.

The rules are those of the API reference (LabelSelector, NodeSelectorTerm): a missing LabelSelector matches nothing
and an empty one everything; a node selector matches when one of its terms does, and a term without expressions
matches nothing; `NotIn` and `DoesNotExist` hold where the key is missing; `Gt` and `Lt` compare integers. A term with a
value that is no integer, or can be the value of no label, matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.decisions.plain.world import Obj, labels, name


def requirements(selector: Obj) -> list[Obj]:
    """Return a label selector's requirements, including those of `matchLabels`."""
    of_labels = (selector.get("matchLabels") or {}).items()
    equal = [{"key": key, "operator": "In", "values": [value]} for key, value in of_labels]
    return [*equal, *(selector.get("matchExpressions") or [])]


def selects(selector: Obj | None, of: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    return selector is not None and all(holds(requirement, of) for requirement in requirements(selector))


def holds(requirement: Obj, of: Mapping[str, str]) -> bool:
    """Return whether one requirement, of a label selector or a node selector, is true of these labels."""
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or []
    match operator:
        case "In":
            return key in of and of[key] in values
        case "NotIn":
            return key not in of or of[key] not in values
        case "Exists":
            return key in of
        case "DoesNotExist":
            return key not in of
        case "Gt" | "Lt":
            have, limit = integer(of.get(key)), integer(values[0])
            if have is None or limit is None:
                return False
            return have > limit if operator == "Gt" else have < limit
    raise ValueError(f"operator {operator!r}")


def integer(text: str | None) -> int | None:
    """Return a decimal of 64 bits, or None."""
    number = int(text) if text is not None and re.fullmatch("[+-]?[0-9]+", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


LABEL_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"


def faults(term: Obj, place: str) -> list[str]:
    """Return the faults of the values of a NodeSelectorTerm, in apimachinery's words."""
    found = []
    for index, requirement in enumerate(term.get("matchExpressions") or []):
        for number, value in enumerate(requirement.get("values") or []):
            at = f'{place}.matchExpressions[{index}].values[{number}]: Invalid value: "{value}": '
            if requirement["operator"] in ("Gt", "Lt") and integer(value) is None:
                found.append(f"{at}for 'Gt', 'Lt' operators, the value must be an integer")
            if not re.fullmatch(LABEL_VALUE, value):
                found.append(
                    f"{at}a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
                    f"'12345', regex used for validation is '{LABEL_VALUE}')"
                )
    return found


def term_matches(term: Obj, node: Obj) -> bool:
    """Return whether one NodeSelectorTerm matches `node`. Its only field is the node's name."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if (not expressions and not fields) or faults(term, ""):
        return False
    return all(holds(requirement, labels(node)) for requirement in expressions) and all(
        holds(requirement, {"metadata.name": name(node)}) for requirement in fields
    )


def any_term_matches(terms: Sequence[Obj], node: Obj) -> bool:
    return any(term_matches(term, node) for term in terms)
