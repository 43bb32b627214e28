"""Pods with resource claims get the recorded nodes, valid devices, and the recorded refusals.

If several nodes or devices are equally good, the recorded one is only one of them, so an allocation is validated by a
plain implementation of the claim's requirements.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import product

import pytest

from agent_scheduler.engine.dra.binding_conditions import failed
from agent_scheduler.engine.dra.cel import CelError, selector
from agent_scheduler.engine.dra.records import read_claim, read_slice
from agent_scheduler.engine.dra.reservation import ReservedClaims
from tests.decisions.comparing import nonzero
from tests.decisions.devices.cases import EXTENDED, DeviceCase, device_cases
from tests.decisions.devices.engine import NAMESPACE, DeviceEngine, profile_of, stored
from tests.decisions.devices.exceptions import ALIKE, counts_former_devices
from tests.decisions.devices.selecting import SelectorError, matches
from tests.decisions.devices.validity import device_of, expressions_of, options_of, problems
from tests.decisions.engine import AGENT
from tests.decisions.plain.world import name


class Cases(list[DeviceCase]):
    """Cases with an unchanged engine on the cluster of each: large clusters take long to read."""

    @cached_property
    def _engines(self) -> dict[int, DeviceEngine]:
        return {}

    def engine(self, case: DeviceCase) -> DeviceEngine:
        if id(case) not in self._engines:
            self._engines[id(case)] = DeviceEngine(case.cluster, case.claims)
        return self._engines[id(case)]

    def placed(self) -> Iterator[tuple[DeviceCase, DeviceEngine, str]]:
        """Yield the cases with a placed pod, and the node."""
        return ((case, self.engine(case), case.node) for case in self if case.node is not None)


@pytest.fixture(scope="module", params=[6, pytest.param(1, marks=pytest.mark.wide)])
def cases(request: pytest.FixtureRequest) -> Cases:
    """Return some of the cases in `make test`, all in `make verify`."""
    return Cases(device_cases()[:: request.param])


def _wrong(case: DeviceCase, engine: DeviceEngine, node: str) -> list[str]:
    """Return the faults of the claims' allocations on a node."""
    claims = engine.claims_there(case.pending, node, case.claims)
    given = zip(engine.allocations(case.pending, node), claims, strict=True)
    return problems(case.cluster, node, claims, [each.status(name(claim)) for each, claim in given])


def _wrong_as_recorded(case: DeviceCase, engine: DeviceEngine) -> list[str]:
    """Return the plain rules' faults of the recorded allocation, of which the recording has only the results."""
    assert case.node is not None
    claims = engine.claims_there(case.pending, case.node, case.claims)
    given = [{"devices": {"results": case.allocations[name(claim)]}} for claim in claims]
    found = problems(case.cluster, case.node, claims, given)
    return [each for each in found if not each.startswith("the claim may be used on ")]


def _is_an_error_of_theirs(case: DeviceCase, engine: DeviceEngine) -> bool:
    """Return whether equal devices were allocated that had to differ; see `devices.exceptions`."""
    found = _wrong_as_recorded(case, engine)
    return bool(found) and all(each.startswith(ALIKE) for each in found)


def test_the_plain_reading_agrees_with_what_the_real_one_allocated(cases: Cases) -> None:
    """The plain rules must be right to judge the engine's allocations."""
    assert any(cases.placed())
    for case, engine, _ in cases.placed():
        found = [each for each in _wrong_as_recorded(case, engine) if not each.startswith(ALIKE)]
        assert (case.id, found) == (case.id, [])


def test_their_errors_are_few(cases: Cases) -> None:
    """Few errors of theirs can excuse errors of the engine."""
    errors = [case.id for case, engine, _ in cases.placed() if _is_an_error_of_theirs(case, engine)]
    assert len(errors) <= max(1, len(cases) // 25), errors


def test_a_pod_can_go_where_the_real_one_put_it(cases: Cases) -> None:
    for case, engine, node in cases.placed():
        if not _is_an_error_of_theirs(case, engine):
            assert node in engine.where(case.pending).nodes, case.id


def test_the_profile_of_the_fast_path_lets_pods_go_to_the_same_nodes(cases: Cases) -> None:
    for case in cases:
        agent = DeviceEngine(case.cluster, case.claims, AGENT).where(case.pending)
        assert (case.id, {*agent.nodes}) == (case.id, {*cases.engine(case).where(case.pending).nodes})


def test_wherever_a_pod_can_go_its_claims_get_what_they_ask_for(cases: Cases) -> None:
    for case in cases:
        engine = cases.engine(case)
        for node in engine.where(case.pending).nodes:
            assert (case.id, node, _wrong(case, engine, node)) == (case.id, node, [])


def test_a_pod_is_refused_where_the_real_one_refuses_it_with_its_reasons_and_counts(cases: Cases) -> None:
    for case in cases:
        if case.node is None and not case.error:
            engine = cases.engine(case)
            assert (case.id, engine.where(case.pending).nodes) == (case.id, ())
            assert (case.id, engine.message(case.pending)) == (case.id, case.message)


def test_nodes_are_scored_as_by_the_real_one(cases: Cases) -> None:
    """The case's arguments of plugins apply, also to devices of extended resources."""
    former = 0
    for case in (each for each in cases if each.scores):
        decided = DeviceEngine(case.cluster, case.claims, profile_of(case)).decide(dict(case.pending))
        found, recorded = (nonzero(decided.scores), decided.final), (nonzero(case.scores), case.final)
        if found != recorded and counts_former_devices(case):
            former += 1
            continue
        assert (case.id, *found) == (case.id, *recorded)
        assert case.node in decided.best, case.id
    assert former <= 2


def test_containers_have_of_the_claim_that_is_made_for_them_what_the_real_one_says(cases: Cases) -> None:
    for case, engine, node in cases.placed():
        made = engine.made(case.pending, node)
        assert (case.id, made is not None) == (case.id, EXTENDED in case.allocations)
        assert (case.id, [] if made is None else made[1]) == (case.id, list(case.mappings))


def test_a_pod_waits_for_its_devices_as_long_as_the_real_one_and_fails_with_its_words(cases: Cases) -> None:
    for case in cases:
        if case.reports is None:
            continue
        is_ready, failures = True, []
        for claim in case.claims:
            results = case.allocations[name(claim)]
            given = set(map(device_of, results))
            told = [each for each in case.reports if device_of(each) in given]
            status = {"allocation": {"devices": {"results": results}}, "devices": told}
            binding = read_claim(stored({**claim, "status": status}, NAMESPACE)).binding_conditions
            if binding is not None:
                is_ready = is_ready and binding.is_ready
                failures += [failed(name(claim), binding.failure)] if binding.failure else []
        said = failures[0] if failures else ""
        assert (case.id, said, is_ready) == (case.id, case.failure, not (case.failure or case.is_waiting))


def test_what_the_real_one_cannot_judge_is_refused_with_the_place_or_had_from_another_node(cases: Cases) -> None:
    for case in cases:
        if case.error:
            decided = cases.engine(case).where(case.pending)
            assert decided.nodes or case.error in decided.message, (case.id, case.error, decided.message)


def test_devices_that_were_taken_are_not_given_to_another_pod_of_the_same_class(cases: Cases) -> None:
    """Pods like the pending one, each with claims of its own, are placed until no node has devices left."""
    placed = 0
    for case, shared, _ in cases.placed():
        if not case.claims or _is_an_error_of_theirs(case, shared):
            continue
        engine = DeviceEngine(case.cluster, case.claims)
        reserved = engine.reserve(case.pending, engine.where(case.pending).nodes[0])
        assert isinstance(reserved, ReservedClaims)
        assert engine.devices.check() == []
        taken = {use.id for part in reserved.claims for use in part.allocated.uses}
        named = set(map(name, case.claims))
        for claim in case.claims:
            copied = {**claim, "metadata": {"name": f"{name(claim)}-copy"}}
            engine.devices.set_claim(read_claim(stored(copied, NAMESPACE)))
        entries = [
            {**each, "resourceClaimName": f"{each['resourceClaimName']}-copy"}
            for each in case.pending["spec"]["resourceClaims"]
            if each["resourceClaimName"] in named
        ]
        spec = {**case.pending["spec"], "resourceClaims": entries}
        pod = {"metadata": {"name": "like-it"}, "spec": spec}
        for other in engine.where(pod).nodes:
            placed += 1
            uses = {use.id for each in engine.allocations(pod, other) for use in each.allocated.uses}
            assert (case.id, uses & taken) == (case.id, set())
    assert placed


def test_selectors_mean_what_the_plain_reading_says(cases: Cases) -> None:
    """Every expression of the recording is evaluated for every device of its case."""
    asked = 0
    for case in cases:
        requests = [each for claim in case.claims for each in claim["spec"]["devices"]["requests"]]
        options = [option for each in requests for option in options_of(each).values()]
        expressions = {each for option in options for each in expressions_of(option)}
        specs = [each["spec"] for each in case.cluster.classes]
        expressions |= {expression for spec in specs for expression in expressions_of(spec)}
        for each in case.cluster.slices:
            devices = zip(each["spec"].get("devices") or (), read_slice(stored(each)).devices, strict=True)
            for (device, known), expression in product(devices, expressions):
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
