"""Claims and static volumes on many nodes at once, against a plain reading of the rule for one node after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.state.nodeselection import reached, reaches
from agent_scheduler.engine.state.podvolumes import pod_volumes
from agent_scheduler.engine.state.reach import Reach
from agent_scheduler.engine.volumes.binding import Plan, judge, plan
from agent_scheduler.engine.volumes.candidate_index import CandidateIndex
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.matching import claims_to_bind, find_matching_volumes, matching_nodes
from agent_scheduler.engine.volumes.reservation import reserve, unreserve
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.examples import examples
from tests.support.storage import Json, capacity, claim, driver, pod, ref, spec, storage_class, volume

ZONES, HOSTS, SIZES = ["z1", "z2"], ["a", "b", "c"], ["1Gi", "2Gi", "3Gi"]
ZONE_KEY = "topology.kubernetes.io/zone"


class Thing(NamedTuple):
    place: int
    reach: Reach | None
    class_name: str = ""


def shelved(reaches_of: Iterable[Reach | None]) -> CandidateIndex[Thing]:
    index: CandidateIndex[Thing] = CandidateIndex()
    for place, reach in enumerate(reaches_of):
        index.put((place,), Thing(place, reach))
    return index


def requirements() -> st.SearchStrategy[Json]:
    keys = st.sampled_from([ZONE_KEY, "kubernetes.io/hostname", "missing"])
    values = st.lists(st.sampled_from([*ZONES, *HOSTS]), min_size=1, max_size=2)
    with_values = st.builds(
        lambda key, operator, found: {"key": key, "operator": operator, "values": found},
        keys,
        st.sampled_from(["In", "In", "In", "NotIn"]),
        values,
    )
    return with_values | st.builds(lambda key: {"key": key, "operator": "Exists"}, keys)


AFFINITY = st.none() | st.lists(
    st.builds(lambda found: {"matchExpressions": found}, st.lists(requirements(), max_size=2)), max_size=2
)
VOLUMES = st.lists(
    st.tuples(st.sampled_from(SIZES), AFFINITY, st.sampled_from([None, None, None, "c0", "c1", "else"])),
    max_size=6,
)
CLAIMS = st.lists(
    st.tuples(st.sampled_from(SIZES), st.sampled_from(["slow", "made"])), min_size=1, max_size=3
)

RUNS = examples(200)


def cluster() -> Storage:
    zones: Any = zip(HOSTS, ["z1", "z2", None], strict=True)
    return Storage(*(node(name, labels={ZONE_KEY: zone} if zone else {}) for name, zone in zones))


def plain_reach(terms: list[Json] | None, labels: Any) -> bool:
    if terms is None:
        return True
    return any(
        term["matchExpressions"] and all(_holds(each, labels) for each in term["matchExpressions"])
        for term in terms
    )


def _holds(each: Json, labels: Any) -> bool:
    value = labels.get(each["key"])
    match each["operator"]:
        case "In":
            return value in each["values"]
        case "NotIn":
            return value not in each["values"]
    return value is not None


@RUNS
@given(st.lists(AFFINITY, max_size=5))
def test_affinities_are_counted_as_they_are_read(found: list[list[Json] | None]) -> None:
    storage = cluster()
    affinities = [
        volume("v", nodeAffinity=None if terms is None else {"required": {"nodeSelectorTerms": terms}}).reach
        for terms in found
    ]
    index = shelved(affinities)
    counts = index.counts(storage.columns, storage.rows)
    for name, count in zip(HOSTS, counts.tolist(), strict=True):
        plain = [plain_reach(terms, storage.node(name).labels) for terms in found]
        assert count == sum(plain)
        assert [each.place for each in index.at(storage.node(name))] == [
            position for position, yes in enumerate(plain) if yes
        ]
        assert index.counts(storage.columns, storage.rows[[HOSTS.index(name)]]).tolist() == [count]
        assert [reaches(each, storage.node(name)) for each in affinities] == plain
    for each, terms in zip(affinities, found, strict=True):
        expected = [name for name in HOSTS if plain_reach(terms, storage.node(name).labels)]
        assert storage.names(reached(each, storage.columns, storage.rows)) == expected


def plain_choice(claims: Any, volumes: Any, labels: Any) -> dict[str, str]:
    """Claim -> volume on one node: claims by size, each the smallest that is left and can be reached."""
    chosen: dict[str, str] = {}
    for name, (size, class_name) in sorted(claims.items(), key=lambda each: each[1][0]):
        fitting = [
            (name_of, owner, terms)
            for name_of, (capacity_of, terms, owner) in sorted(
                volumes.items(), key=lambda each: (each[1][0], each[0])
            )
            if class_name == "slow" and capacity_of >= size and owner in (None, name)
        ]
        meant = [each for each in fitting if each[1] == name]
        for name_of, _, terms in meant or fitting:
            if name_of not in chosen.values() and plain_reach(terms, labels):
                chosen[name] = name_of
                break
    return chosen


@pytest.mark.promise("S13")
@RUNS
@given(CLAIMS, VOLUMES, st.booleans())
def test_many_nodes_at_once_are_as_one_after_the_other(
    claims: list[tuple[str, str]], volumes: list[tuple[str, Any, str | None]], small_pool: bool
) -> None:
    storage = cluster().add(storage_class(), storage_class("made", provisioner="csi", zones=["z1", "z2"]))
    storage.add(driver("csi"))
    storage.add(capacity("p", "2Gi" if small_pool else "4Gi", topology={"matchLabels": {ZONE_KEY: "z1"}}))
    named_claims = {f"c{index}": each for index, each in enumerate(claims)}
    named_volumes = {f"v{index}": each for index, each in enumerate(volumes)}
    for name, (size, class_name) in named_claims.items():
        storage.add(claim(name, size=size, class_name=class_name))
    for name, (size, terms, owner) in named_volumes.items():
        affinity = None if terms is None else {"required": {"nodeSelectorTerms": terms}}
        storage.add(volume(name, size=size, claim=ref(owner) if owner else None, nodeAffinity=affinity))
    catalogue, columns, rows = storage.catalogue, storage.columns, storage.rows

    choosing = claims_to_bind([catalogue.claims["default", name] for name in named_claims], catalogue)
    masks = matching_nodes(choosing, columns, rows)
    found = pod_volumes(spec(*named_claims), namespace="default", name="p", uid="u")
    assert found is not None
    planned = plan(found, catalogue)
    assert isinstance(planned, Plan)
    judged = judge(planned, catalogue, columns, rows)
    for position, name in enumerate(HOSTS):
        labels = storage.node(name).labels
        plain = plain_choice(named_claims, named_volumes, labels)
        chosen = find_matching_volumes(choosing, storage.node(name))
        assert {key[1]: each.name for key, each in chosen.items()} == plain
        assert {each.claim.name for each, mask in zip(choosing, masks, strict=True) if mask[position]} == set(
            plain
        )
        # In the order in which they choose, the first that is neither found nor made gives the reason.
        verdict = ""
        for claim_name, (size, class_name) in sorted(named_claims.items(), key=lambda each: each[1][0]):
            if claim_name in plain or verdict:
                continue
            zone = labels.get(ZONE_KEY)
            if class_name == "slow" or zone is None:
                verdict = "nothing"
            elif zone != "z1" or (small_pool and size == "3Gi"):
                verdict = "no space"
        assert bool(judged.bind_conflict[position]) is (verdict == "nothing")
        assert bool(judged.not_enough_space[position]) is (verdict == "no space")
        # What the filter lets pass can be reserved, and what it refuses cannot.
        reservation = reserve(found, catalogue, storage.node(name), "holder")
        assert isinstance(reservation, Unresolvable) is bool(verdict)
        if not isinstance(reservation, Unresolvable):
            assert {each.claim[1]: each.volume for each in reservation.static_bindings} == plain
        unreserve(catalogue, "holder")
        assert catalogue.check() == []


def test_a_node_without_the_label_is_not_one_whose_label_is_empty() -> None:
    empty = {"key": ZONE_KEY, "operator": "In", "values": [""]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [empty]}]}
    index = shelved([volume("v", nodeAffinity={"required": terms}).reach])
    found = [list(index.at(node("n", labels=labels))) for labels in ({}, {ZONE_KEY: ""})]
    assert [len(each) for each in found] == [0, 1]


def test_an_affinity_for_a_label_and_a_name_asks_for_both() -> None:
    term = {
        "matchExpressions": [{"key": ZONE_KEY, "operator": "In", "values": ["z1", "z2"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}],
    }
    storage = cluster()
    reach = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [term]}}).reach
    assert shelved([reach]).counts(storage.columns, storage.rows).tolist() == [0, 1, 0]
    assert [reaches(reach, storage.node(name)) for name in HOSTS] == [False, True, False]


def test_a_volume_that_is_meant_for_a_claim_has_its_attributes_class_or_is_none() -> None:
    c = claim("c", size="2Gi", volumeAttributesClassName="gold")
    other = volume("v1", size="2Gi", claim=ref("c"), volumeAttributesClassName="silver")
    right = volume("v2", size="3Gi", claim=ref("c"), volumeAttributesClassName="gold")
    storage = cluster().add(c, other)
    assert find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")) == {}
    storage.add(right)
    assert [
        each.name
        for each in find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")).values()
    ] == ["v2"]


def test_a_volume_that_is_being_deleted_is_meant_for_nobody() -> None:
    c = claim("c")
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    storage = cluster().add(c, volume("v1", claim=ref("c"), meta=gone), volume("v2", size="2Gi"))
    assert [
        each.name
        for each in find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")).values()
    ] == ["v2"]


def test_of_two_claims_and_a_thousand_local_volumes_one_is_left_over_on_every_node() -> None:
    storage = Storage(*(node(f"n{index}") for index in range(1000)))
    storage.add(storage_class(), claim("c"), claim("d"))
    storage.add(*(volume(f"v{index}", on=f"n{index}") for index in range(1000)), volume("w", on="n7"))
    planned = plan(pod("c", "d"), storage.catalogue)
    assert isinstance(planned, Plan)
    found = judge(planned, storage.catalogue, storage.columns, storage.rows).feasible
    assert storage.names(found) == ["n7"]
