"""Whether a toleration covers a taint (API reference, Toleration).

An empty effect covers every effect; an empty key with `Exists` covers every taint; the operator defaults to
`Equal`; `Gt` and `Lt` compare the taint's value with the toleration's as integers and fail where either is none
(KEP-5471); how long a taint is tolerated does not matter to scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.decisions.plain.selectors import integer
from tests.decisions.plain.world import Obj


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Gt" | "Lt" as operator:
            have, limit = integer(taint.get("value")), integer(toleration.get("value"))
            if have is None or limit is None:
                return False
            return have > limit if operator == "Gt" else have < limit
    raise ValueError(f"operator {toleration['operator']!r}")


def tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)
