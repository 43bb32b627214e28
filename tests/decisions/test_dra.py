"""Pods with resource claims go where a real kube-scheduler puts them, get devices that they may have, and are refused
in its words where it refuses them.

Where several nodes or devices would do, the recorded one is only one of them, so an allocation is judged by a plain
reading of what the claim asks for.
"""

from __future__ import annotations

import pytest

from agent_scheduler.engine.dra.cel import CelError, selector
from agent_scheduler.engine.dra.records import read_claim, read_slice
from agent_scheduler.engine.dra.reservation import STILL, Reservation
from agent_scheduler.engine.preemption.message import NO_CLAIMS
from tests.decisions.devices.cases import DeviceCase, device_cases
from tests.decisions.devices.engine import NAMESPACE, DeviceEngine, stored
from tests.decisions.devices.selecting import SelectorError, matches
from tests.decisions.devices.validity import Obj, problems
from tests.decisions.engine import AGENT, DEFAULT
from tests.decisions.preempting import message


@pytest.fixture(scope="module")
def cases() -> list[DeviceCase]:
    return device_cases()


def _wrong(case: DeviceCase, engine: DeviceEngine, node: str) -> list[str]:
    """What is wrong with what the claims would get on a node."""
    allocations = engine.allocations(case.pending, node)
    statuses = [
        each.status(claim["metadata"]["name"]) for each, claim in zip(allocations, case.claims, strict=True)
    ]
    return problems(case.cluster, node, case.claims, statuses)


def test_the_plain_reading_agrees_with_what_the_real_one_allocated(cases: list[DeviceCase]) -> None:
    """So that what it says of ours is worth something."""
    judged = 0
    for case in cases:
        if case.node is None:
            continue
        given = [
            {"devices": {"results": case.allocations[claim["metadata"]["name"]]}, "nodeSelector": None}
            for claim in case.claims
        ]
        found = [
            each
            for each in problems(case.cluster, case.node, case.claims, given)
            # The recording has the results alone.
            if not each.startswith("the claim may be used on ")
        ]
        assert (case.id, found) == (case.id, [])
        judged += 1
    assert judged


def test_a_pod_can_go_where_the_real_one_put_it(cases: list[DeviceCase]) -> None:
    for case in cases:
        if case.node is not None:
            assert (
                case.id,
                case.node in DeviceEngine(case.cluster, case.claims).where(case.pending).nodes,
            ) == (
                case.id,
                True,
            )


def test_the_profile_of_the_fast_path_lets_pods_go_to_the_same_nodes(cases: list[DeviceCase]) -> None:
    for case in cases:
        default, agent = (
            set(DeviceEngine(case.cluster, case.claims, profile).where(case.pending).nodes)
            for profile in (DEFAULT, AGENT)
        )
        assert (case.id, agent) == (case.id, default)


def test_wherever_a_pod_can_go_its_claims_get_what_they_ask_for(cases: list[DeviceCase]) -> None:
    for case in cases:
        engine = DeviceEngine(case.cluster, case.claims)
        for node in engine.where(case.pending).nodes:
            assert (case.id, node, _wrong(case, engine, node)) == (case.id, node, [])


def test_a_pod_is_refused_where_the_real_one_refuses_it_with_its_reasons_and_counts(
    cases: list[DeviceCase],
) -> None:
    for case in cases:
        if case.node is None and not case.error:
            engine = DeviceEngine(case.cluster, case.claims)
            assert (case.id, engine.where(case.pending).nodes) == (case.id, ())
            said = message(engine, dict(case.pending)) or ""
            assert (case.id, said.replace(NO_CLAIMS, STILL)) == (case.id, case.message)


def test_what_the_real_one_cannot_judge_is_refused_with_the_place_or_had_from_another_node(
    cases: list[DeviceCase],
) -> None:
    for case in cases:
        if case.error:
            decided = DeviceEngine(case.cluster, case.claims).where(case.pending)
            assert decided.nodes or case.error in decided.message, (case.id, case.error, decided.message)


def test_devices_that_were_taken_are_not_given_to_another_pod_of_the_same_class(
    cases: list[DeviceCase],
) -> None:
    """Pods like the pending one, each with claims of its own, until no node has devices left."""
    placed = 0
    for case in cases:
        if case.node is None:
            continue
        engine = DeviceEngine(case.cluster, case.claims)
        node = engine.where(case.pending).nodes[0]
        reserved = engine.reserve(case.pending, node)
        assert isinstance(reserved, Reservation)
        assert engine.devices.check() == []
        claims = case.claims
        taken = {use.id for part in reserved.parts for use in part.holding.uses}
        copies = tuple(
            {**claim, "metadata": {"name": f"{claim['metadata']['name']}-copy"}} for claim in claims
        )
        pod = {
            "metadata": {"name": "like-it"},
            "spec": {
                **case.pending["spec"],
                "resourceClaims": [
                    {**each, "resourceClaimName": f"{each['resourceClaimName']}-copy"}
                    for each in case.pending["spec"]["resourceClaims"]
                ],
            },
        }
        engine = _with_claims(engine, copies)
        for other in engine.where(pod).nodes:
            placed += 1
            uses = {use.id for each in engine.allocations(pod, other) for use in each.holding.uses}
            assert (case.id, uses & taken) == (case.id, set())
    assert placed


def _with_claims(engine: DeviceEngine, claims: tuple[Obj, ...]) -> DeviceEngine:
    for claim in claims:
        engine.devices.set_claim(read_claim(stored(claim, NAMESPACE)))
    return engine


def test_selectors_mean_what_the_plain_reading_says(cases: list[DeviceCase]) -> None:
    """Every expression of the recording, asked of every device of its case."""
    asked = 0
    for case in cases:
        expressions = {
            each["cel"]["expression"]
            for claim in case.claims
            for request in claim["spec"]["devices"]["requests"]
            for option in [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
            for each in option.get("selectors") or ()
        }
        expressions |= {expression for each in case.cluster.classes for expression in _of_class(each)}
        for each in case.cluster.slices:
            for device, known in zip(each["spec"]["devices"], read_slice(stored(each)).devices, strict=True):
                for expression in expressions:
                    try:
                        plain: object = matches(expression, each["spec"]["driver"], device)
                    except SelectorError as error:
                        plain = f"CEL runtime error: {error}"
                    try:
                        ours: object = selector(expression).matches(known.facts)
                    except CelError as error:
                        ours = str(error)
                    assert (case.id, expression, device, ours) == (case.id, expression, device, plain)
                    asked += 1
    assert asked


def _of_class(each: Obj) -> list[str]:
    return [selector["cel"]["expression"] for selector in each["spec"].get("selectors") or ()]
