"""VolumeBinding: which nodes can have all of a pod's claims; and many nodes at once against a plain reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.state.nodeselection import reached, reaches
from agent_scheduler.engine.state.podvolumes import PodVolumes, pod_volumes
from agent_scheduler.engine.state.reach import Reach
from agent_scheduler.engine.volumes.binding import VolumePlan, feasible, judge, plan, reasons
from agent_scheduler.engine.volumes.candidate_index import CandidateIndex
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.matching import claims_to_bind, find_matching_volumes, matching_nodes
from agent_scheduler.engine.volumes.reservation import reserve, unreserve
from tests.support.engine import World, node
from tests.support.examples import examples
from tests.support.storage import Json, capacity, claim, driver, pod, ref, spec, storage_class, volume
from tests.support.terms import ZONE

CONFLICT = "node(s) had volume node affinity conflict"
NOTHING = "node(s) didn't find available persistent volumes to bind"
ROOM = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

DELETED: Any = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OWNED: Any = {"ownerReferences": [{"uid": "uid-p", "name": "p", "controller": True}]}
UNMADE = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"'
LARGE = claim("c", size="2Gi")
SELECTIVE = claim("c", selector={"matchLabels": {"disk": "ssd"}})
IN_A = capacity("p", "1Gi", topology={"matchLabels": {ZONE: "a"}})
EPHEMERAL = pod(ephemeral=("tmp",))
BOTH = pod("c", "d")


def bound(name: str = "c", to: str = "v", **more: Any) -> Any:
    return claim(name, volume=to, bound=True, **more)


BOUND = bound()


def in_zone(zone: str) -> Any:
    """The class of volumes that are made, in one zone."""
    return storage_class("made", provisioner="csi", zones=[zone])


def made(name: str = "c", **more: Any) -> Any:
    return claim(name, class_name="made", **more)


def mounted(**more: Any) -> Any:
    """The volume that claim c is bound to."""
    return volume("v", claim=ref("c"), phase="Bound", **more)


def cluster(*more: Any) -> World:
    """Nodes a and b, in zones of the same names, and the class `slow`, whose volumes are made by hand."""
    nodes = [node(name, labels={ZONE: name}) for name in ("a", "b")]
    return World(*nodes).add(storage_class(), storage_class("made", provisioner="csi"), *more)


def verdict(world: World, volumes: PodVolumes) -> str | list[str] | dict[str, int]:
    """Why no node can help; else the nodes that will do; or, if there are none, the reasons of each."""
    found = plan(volumes, world.catalogue)
    if isinstance(found, Unresolvable):
        return found.message
    assert isinstance(found, VolumePlan)
    fits = world.names(feasible(found, world.catalogue, world.columns, world.rows))
    return fits or dict(reasons(found, world.catalogue, world.columns, world.rows))


@pytest.mark.parametrize(
    ("objects", "volumes", "expected"),
    [
        # What no node can help.
        ([], pod("c"), 'persistentvolumeclaim "c" not found'),
        ([claim("c", meta={"namespace": "other"})], pod("c"), 'persistentvolumeclaim "c" not found'),
        ([], EPHEMERAL, UNMADE),
        ([claim("p-tmp")], EPHEMERAL, "PVC default/p-tmp was not created for pod default/p (pod is not owner)"),
        ([claim("p-tmp", meta=OWNED), volume("v", on="a")], EPHEMERAL, ["a"]),
        ([bound(phase="Lost")], pod("c"), 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
        ([bound(meta=DELETED)], pod("c"), 'persistentvolumeclaim "c" is being deleted'),
        # A missing claim is named before an unbound one.
        ([claim("c", class_name=None)], BOTH, 'persistentvolumeclaim "d" not found'),
        # Bound claims.
        ([BOUND, mounted(zone="b")], pod("c"), ["b"]),
        ([BOUND, mounted(zone="z")], pod("c"), {CONFLICT: 2}),
        ([BOUND, mounted(zone="b"), bound("d", "gone")], BOTH, {CONFLICT: 1, MISSING: 1}),
        # Static volumes.
        ([claim("c"), volume("v", on="b")], pod("c"), ["b"]),
        ([SELECTIVE, volume("v")], pod("c"), {NOTHING: 2}),
        ([SELECTIVE, volume("v", on="a", meta={"labels": {"disk": "ssd"}})], pod("c"), ["a"]),
        # One that is meant for the claim is the only one that it may have, whatever its phase and access modes.
        ([claim("c"), volume("v", on="a"), volume("w", on="b", claim=ref("c", uid=""))], pod("c"), ["b"]),
        ([claim("c"), volume("v", on="b", claim=ref("c"), phase="Bound", accessModes=[])], pod("c"), ["b"]),
        ([claim("c"), claim("d"), volume("v", on="a"), *(volume(name, on="b") for name in "wx")], BOTH, ["b"]),
        # Claims choose by size, so that the large volume is left for the large claim.
        ([LARGE, claim("d"), volume("v", on="a"), volume("w", size="2Gi", on="a")], BOTH, ["a"]),
        # Volumes that are made: in the topologies of the class, and on the node that was selected before.
        ([made()], pod("c"), ["a", "b"]),
        ([made(), in_zone("b")], pod("c"), ["b"]),
        ([made(), in_zone("z")], pod("c"), {NOTHING: 2}),
        ([made(selected="b")], pod("c"), ["b"]),
        ([made(selected="b"), in_zone("a")], pod("c"), {NOTHING: 2}),
        ([made(selected="b"), driver("csi")], pod("c"), {NOTHING: 1, ROOM: 1}),
        ([made(selected="b"), volume("v", class_name="made", on="a")], pod("c"), ["b"]),
        ([made(selected="gone")], pod("c"), {NOTHING: 2}),
        # A driver that tells its capacity makes volumes where a pool is large enough.
        ([made(), driver("csi"), IN_A], pod("c"), ["a"]),
        ([made(), driver("csi", tells_capacity=False), capacity("p", "1Mi", topology={})], pod("c"), ["a", "b"]),
        ([made(size=None), driver("csi")], pod("c"), ["a", "b"]),
        # The first claim that cannot be made gives the reason; bound and waiting claims each give theirs.
        ([made(), driver("csi"), IN_A, claim("d", size="2Gi")], BOTH, {NOTHING: 1, ROOM: 1}),
        ([BOUND, mounted(zone="a"), claim("d")], BOTH, {CONFLICT: 1, NOTHING: 2}),
        ([claim("c"), volume("v", on="a"), made("d")], BOTH, ["a"]),
    ],
)
def test_a_pod_can_go_where_each_of_its_claims_is_bound_or_can_be(
    objects: list[Any], volumes: PodVolumes, expected: object
) -> None:
    assert verdict(cluster(*objects), volumes) == expected


def test_a_pod_without_claims_is_none_of_its_business() -> None:
    assert plan(pod(d={"gcePersistentDisk": {"pdName": "d"}}), cluster().catalogue) is None


@pytest.mark.parametrize(
    "unbound",
    [
        claim("c", class_name="now"),
        claim("c", class_name=None),
        claim("c", class_name="missing"),
        claim("c", volume="v"),
    ],
    ids=["immediate class", "no class", "unknown class", "names its volume"],
)
def test_a_claim_that_is_bound_without_a_pod_has_to_be_bound_first(unbound: Any) -> None:
    world = cluster(storage_class("now", mode="Immediate"), unbound)
    assert verdict(world, pod("c")) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_pod_whose_claims_are_all_bound_has_nothing_to_wait_for() -> None:
    found = plan(pod("c"), cluster(BOUND, mounted()).catalogue)
    assert isinstance(found, VolumePlan) and found.all_bound


@pytest.mark.parametrize(
    "unfit",
    [
        volume("v", size="512Mi"),
        volume("v", class_name="other"),
        volume("v", accessModes=["ReadOnlyMany"]),
        volume("v", volumeMode="Block"),
        volume("v", phase="Released"),
        volume("v", phase="Pending"),
        volume("v", meta=DELETED),
        volume("v", claim=ref("other")),
        volume("v", claim=ref("c", uid="of one that went")),
        volume("v", claim=ref("c", namespace="elsewhere")),
        volume("v", volumeAttributesClassName="gold"),
        volume("v", zone="z"),
    ],
)
def test_a_volume_that_does_not_fit_the_claim_is_not_for_it(unfit: Any) -> None:
    assert verdict(cluster(claim("c"), unfit), pod("c")) == {NOTHING: 2}


@pytest.mark.parametrize(
    "pool",
    [
        capacity("p", "1023Mi", topology={}),
        capacity("p", "2Gi", topology={}, most="512Mi"),
        capacity("p", "2Gi", topology=None),
        capacity("p", None, topology={}),
        capacity("p", "2Gi", topology={}, class_name="other"),
    ],
    ids=["full", "small volumes only", "reached from nowhere", "says nothing", "other class"],
)
def test_a_pool_that_is_too_small_or_out_of_reach_makes_no_volume(pool: Any) -> None:
    assert verdict(cluster(made(), driver("csi"), pool), pod("c")) == {ROOM: 2}


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
    st.tuples(st.sampled_from(SIZES), AFFINITY, st.sampled_from([None, None, None, "c0", "c1", "else"])), max_size=6
)
CLAIMS = st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(["slow", "made"])), min_size=1, max_size=3)

RUNS = examples(200)


def three_nodes() -> World:
    zones: Any = zip(HOSTS, ["z1", "z2", None], strict=True)
    return World(*(node(name, labels={ZONE_KEY: zone} if zone else {}) for name, zone in zones))


def plain_reach(terms: list[Json] | None, labels: Any) -> bool:
    if terms is None:
        return True
    return any(
        term["matchExpressions"] and all(_holds(each, labels) for each in term["matchExpressions"]) for term in terms
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
    storage = three_nodes()
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
            for name_of, (capacity_of, terms, owner) in sorted(volumes.items(), key=lambda each: (each[1][0], each[0]))
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
    storage = three_nodes().add(storage_class(), storage_class("made", provisioner="csi", zones=["z1", "z2"]))
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
    assert isinstance(planned, VolumePlan)
    judged = judge(planned, catalogue, columns, rows)
    for position, name in enumerate(HOSTS):
        labels = storage.node(name).labels
        plain = plain_choice(named_claims, named_volumes, labels)
        chosen = find_matching_volumes(choosing, storage.node(name))
        assert {key[1]: each.name for key, each in chosen.items()} == plain
        assert {each.claim.name for each, mask in zip(choosing, masks, strict=True) if mask[position]} == set(plain)
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
    storage = three_nodes()
    reach = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [term]}}).reach
    assert shelved([reach]).counts(storage.columns, storage.rows).tolist() == [0, 1, 0]
    assert [reaches(reach, storage.node(name)) for name in HOSTS] == [False, True, False]


def test_a_volume_that_is_meant_for_a_claim_has_its_attributes_class_or_is_none() -> None:
    c = claim("c", size="2Gi", volumeAttributesClassName="gold")
    other = volume("v1", size="2Gi", claim=ref("c"), volumeAttributesClassName="silver")
    right = volume("v2", size="3Gi", claim=ref("c"), volumeAttributesClassName="gold")
    storage = three_nodes().add(c, other)
    assert find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")) == {}
    storage.add(right)
    assert [
        each.name for each in find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")).values()
    ] == ["v2"]


def test_a_volume_that_is_being_deleted_is_meant_for_nobody() -> None:
    c = claim("c")
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    storage = three_nodes().add(c, volume("v1", claim=ref("c"), meta=gone), volume("v2", size="2Gi"))
    assert [
        each.name for each in find_matching_volumes(claims_to_bind([c], storage.catalogue), storage.node("a")).values()
    ] == ["v2"]


def test_of_two_claims_and_a_thousand_local_volumes_one_is_left_over_on_every_node() -> None:
    """So many rows are counted together, and not one by one."""
    storage = World(*(node(f"n{index}") for index in range(1000)))
    storage.add(storage_class(), claim("c"), claim("d"))
    storage.add(*(volume(f"v{index}", on=f"n{index}") for index in range(1000)), volume("w", on="n7"))
    planned = plan(BOTH, storage.catalogue)
    assert isinstance(planned, VolumePlan)
    assert storage.names(judge(planned, storage.catalogue, storage.columns, storage.rows).feasible) == ["n7"]
