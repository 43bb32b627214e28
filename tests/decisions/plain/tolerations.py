"""Whether a toleration covers a taint (API reference, Toleration).

An empty effect covers every effect; an empty key with `Exists` covers every taint; the operator defaults to
`Equal`; how long a taint is tolerated does not matter to scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.decisions.plain.world import Obj


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")


def tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)
