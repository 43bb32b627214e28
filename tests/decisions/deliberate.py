"""Intended differences from kube-scheduler: the recorded cases of each, and its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apimachinery.quantity import resource_value
from tests.decisions.plain import Obj
from tests.decisions.recording import Case


@dataclass(frozen=True)
class Difference:
    """A difference; `applies` returns whether kube-scheduler itself may decide a case differently another time."""

    applies: Callable[[Case], bool]
    reason: str


def _several_volumes_for_a_claim(case: Case) -> bool:
    def reached(claim: Obj) -> set[str]:
        meant = (volume for volume in case.storage.volumes if _is_meant(volume, claim))
        return {str(volume["spec"].get("nodeAffinity")) for volume in meant}

    return any(len(reached(claim)) > 1 for claim in case.storage.claims)


def _is_meant(volume: Obj, claim: Obj) -> bool:
    asked, has = claim["spec"], volume["spec"]
    return (
        (has.get("claimRef") or {}).get("name") == claim["metadata"]["name"]
        and (has.get("volumeAttributesClassName") or "") == (asked.get("volumeAttributesClassName") or "")
        and _bytes(has["capacity"]["storage"]) >= _bytes(asked["resources"]["requests"]["storage"])
    )


def _bytes(quantity: str) -> int:
    return resource_value("storage", quantity)


DELIBERATE = (
    Difference(
        _several_volumes_for_a_claim,
        "Several volumes name the claim. kube-scheduler looks at one of them alone, which one is up to the order of a "
        "Go map, and refuses the nodes that this one cannot be reached from; here the claim gets the smallest that can "
        "be reached, so that more nodes will do.",
    ),
)


def why_different(case: Case) -> str:
    """Return the reason of an intended difference; empty for a case that must be decided as it was recorded."""
    return next((each.reason for each in DELIBERATE if each.applies(case)), "")
