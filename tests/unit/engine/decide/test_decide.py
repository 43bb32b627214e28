"""Filters, scores and the choice of candidates, on columns and in kube-scheduler's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.facet_classes import FacetClasses
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.columns import COLUMNS_KEPT
from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from agent_scheduler.engine.state.gpus import problem_with
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from agent_scheduler.objects import wire
from tests.support.examples import examples
from tests.unit.engine.world import GPU, World, node, plain_reasons, plain_requests, pod_json, read_pod

PACK = build_profile(ProfileSpec(scheduler_name="agent-scheduler"))
SPREAD = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))


def ask(
    world: World, pod: PodInfo, profile: Any = PACK, *, candidates: int = 3, **more: Any
) -> CandidateNodes | Refusal:
    snapshot = Snapshot(world.ledger)
    view = ClassViews(profile, snapshot).of(pod.cls)
    return decide(view, snapshot.columns, candidates=candidates, **more)


def chosen(decision: CandidateNodes | Refusal) -> list[str]:
    assert isinstance(decision, CandidateNodes), decision
    return [candidate.node_name for candidate in decision.candidates]


def message(decision: CandidateNodes | Refusal) -> str:
    assert isinstance(decision, Refusal), decision
    return decision.message


def test_packing_prefers_the_fullest_node_that_fits() -> None:
    world = World(node("a"), node("b"), node("c"))
    world.place("b", requests={"cpu": "2", "memory": "1Gi"})
    world.place("c", requests={"cpu": "3500m", "memory": "1Gi"})
    assert chosen(ask(world, world.pod(requests={"cpu": "1", "memory": "1Gi"}))) == ["b", "a"]


def test_spreading_prefers_the_emptiest_node() -> None:
    world = World(node("a"), node("b"))
    world.place("a", requests={"cpu": "2", "memory": "1Gi"})
    assert chosen(ask(world, world.pod(requests={"cpu": "1"}), SPREAD)) == ["b", "a"]


def test_workers_with_different_offsets_start_at_different_nodes_of_equal_score() -> None:
    world = World(*(node(f"n{index}") for index in range(6)))
    pod = world.pod(requests={"cpu": "1"})
    assert chosen(ask(world, pod, offset=0)) == ["n0", "n1", "n2"]
    assert chosen(ask(world, pod, offset=4)) == ["n4", "n5", "n0"]


def test_a_nominated_node_comes_first_when_it_is_feasible() -> None:
    world = World(node("a"), node("b"), node("c"))
    world.place("a", requests={"cpu": "2"})
    pod = world.pod(requests={"cpu": "1"})
    assert chosen(ask(world, pod, nominated=2))[0] == "c"
    world.place("c", requests={"cpu": "4"})
    assert chosen(ask(world, pod, nominated=2))[0] == "a"


def test_a_nominated_node_need_not_be_among_the_best() -> None:
    world = World(node("a"), node("b"), node("c"))
    world.place("a", requests={"cpu": "2"})
    pod = world.pod(requests={"cpu": "1"})
    assert chosen(ask(world, pod, candidates=1)) == ["a"]
    assert chosen(ask(world, pod, candidates=1, nominated=2)) == ["c"]


def test_a_refusal_counts_the_first_reason_of_each_node_sorted_as_texts() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    world = World(
        *(node(f"t{index}", taints=taint) for index in range(10)),
        node("cordoned", unschedulable=True, taints=taint),
        node("small", cpu="500m", memory="1Mi"),
        node("full", pods="0"),
    )
    decision = ask(world, world.pod(requests={"cpu": "1", "memory": "1Gi"}))
    assert message(decision) == (
        "0/13 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) were unschedulable, 10 node(s) had untolerated taint(s)."
    )
    assert isinstance(decision, Refusal)
    assert decision.plugins == {"NodeUnschedulable", "TaintToleration", "NodeResourcesFit"}


def test_an_empty_cluster_has_no_nodes_available() -> None:
    world = World()
    assert message(ask(world, world.pod())) == "no nodes available to schedule pods"


def test_a_resource_that_no_node_offers_is_insufficient_everywhere() -> None:
    world = World(node("a"))
    pod = world.pod(requests={"example.com/gpu": "1"})
    assert message(ask(world, pod)) == "0/1 nodes are available: 1 Insufficient example.com/gpu."


def test_a_resource_that_appears_later_counts_the_pods_that_asked_for_it_before() -> None:
    world = World(node("a"))
    world.place("a", requests={"example.com/gpu": "1"})
    world.ledger.set_node(node("a", extended={"example.com/gpu": "2"}))
    assert contradictions(world.ledger) == []
    assert chosen(ask(world, world.pod(requests={"example.com/gpu": "1"}))) == ["a"]
    assert isinstance(ask(world, world.pod(requests={"example.com/gpu": "2"})), Refusal)


def test_memory_is_counted_to_the_byte() -> None:
    world = World(node("a", memory=str(2**34)))
    world.place("a", requests={"memory": str(2**34 - 512)})
    assert isinstance(ask(world, world.pod(requests={"memory": "513"})), Refusal)
    assert chosen(ask(world, world.pod(requests={"memory": "512"}))) == ["a"]


def test_selectors_on_ever_new_labels_do_not_fill_the_memory() -> None:
    world = World(node("a"), node("b", labels={"key-7": "x"}))
    snapshot = Snapshot(world.ledger)
    for number in [*range(2 * COLUMNS_KEPT), 7]:
        column = snapshot.columns.label(f"key-{number}")
        assert (column[: snapshot.columns.size] != 0).tolist() == [False, number == 7]
    assert len(snapshot.columns._labels) == COLUMNS_KEPT


def test_an_absurd_request_fits_nowhere_and_overflows_nothing() -> None:
    world = World(node("a", memory="8Ei"))
    for _ in range(1000):
        world.place("a", requests={"memory": "8Ei"})
    assert isinstance(ask(world, world.pod(requests={"memory": "8Ei"})), Refusal)
    assert contradictions(world.ledger) == []


@pytest.mark.parametrize(
    ("wanted", "taken", "free"),
    [
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.2", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "UDP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 81), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
    ],
)
def test_host_ports_conflict_by_address_protocol_and_port(
    wanted: tuple[str, str, int], taken: tuple[str, str, int], free: bool
) -> None:
    def containers(port: tuple[str, str, int]) -> list[dict[str, Any]]:
        ip, protocol, number = port
        return [
            {
                "name": "c",
                "ports": [{"containerPort": 1, "hostIP": ip, "protocol": protocol, "hostPort": number}],
            }
        ]

    world = World(node("a"))
    first = world.place("a", containers=containers(taken))
    decision = ask(world, world.pod(containers=containers(wanted)))
    assert isinstance(decision, CandidateNodes) is free
    if not free:
        assert message(decision) == (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        )
    world.ledger.remove_pod(first.uid)
    assert chosen(ask(world, world.pod(containers=containers(wanted)))) == ["a"]


def test_a_view_follows_every_change_of_the_ledger() -> None:
    world = World(node("a"), node("b"))
    snapshot = Snapshot(world.ledger)
    views = ClassViews(PACK, snapshot)
    pod = world.pod(requests={"cpu": "3"})

    def now() -> set[str]:
        snapshot.refresh()
        decision = decide(views.of(pod.cls), snapshot.columns, candidates=9)
        return (
            {each.node_name for each in decision.candidates}
            if isinstance(decision, CandidateNodes)
            else set()
        )

    assert now() == {"a", "b"}
    placed = world.place("a", requests={"cpu": "2"})
    assert now() == {"b"}
    world.ledger.set_node(node("b", unschedulable=True))
    assert now() == set()
    world.ledger.remove_pod(placed.uid)
    assert now() == {"a"}
    world.ledger.remove_node("a")
    world.ledger.set_node(node("c", cpu="16"))
    assert now() == {"c"}
    for index in range(200):
        world.ledger.set_node(node(f"more{index}", cpu="1"))
    assert now() == {"c"}


def test_classes_of_different_nodes_answer_for_themselves_whatever_was_asked_before() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    world = World(node("a"), node("b", taints=taint))
    snapshot = Snapshot(world.ledger)
    views = ClassViews(PACK, snapshot)

    def now(cpu: str, **spec: Any) -> list[str]:
        snapshot.refresh()
        pod = world.pod(requests={"cpu": cpu}, **spec)
        return chosen(decide(views.of(pod.cls), snapshot.columns, candidates=9))

    tolerates = [{"key": "k", "operator": "Exists"}]
    assert now("1") == now("2") == ["a"]
    assert now("1", tolerations=tolerates) == now("2", tolerations=tolerates) == ["a", "b"]
    world.ledger.set_node(node("c", taints=taint))
    world.ledger.set_node(node("a", taints=taint))
    world.ledger.set_node(node("b"))
    assert now("2") == now("1") == ["b"]
    assert now("2", tolerations=tolerates) == now("1", tolerations=tolerates) == ["a", "b", "c"]


def test_classes_that_may_go_to_the_same_nodes_ask_about_them_once() -> None:
    world = World(node("a"), node("b"))
    snapshot = Snapshot(world.ledger)
    tolerates = [{"key": "k", "operator": "Exists"}]
    for profile in (PACK, SPREAD):
        views = ClassViews(profile, snapshot)
        plain = [views.of(world.pod(requests={"cpu": cpu}).cls) for cpu in ("1", "2")]
        tolerant = [
            views.of(world.pod(requests={"cpu": cpu}, tolerations=tolerates).cls) for cpu in ("1", "2")
        ]
        assert plain[0]._rows.nodes is plain[1]._rows.nodes
        assert tolerant[0]._rows.nodes is tolerant[1]._rows.nodes is not plain[0]._rows.nodes


def test_preferred_terms_and_taints_rank_nodes() -> None:
    soft = [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]
    world = World(node("plain"), node("wanted", labels={"disk": "ssd"}), node("avoided", taints=soft))
    preferred = [
        {
            "weight": 10,
            "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
        }
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    pod = world.pod(requests={"cpu": "1"}, affinity=affinity)
    assert chosen(ask(world, pod)) == ["wanted", "plain", "avoided"]


def test_labels_that_change_change_the_answer() -> None:
    world = World(node("a"))
    snapshot = Snapshot(world.ledger)
    views = ClassViews(PACK, snapshot)
    pod = world.pod(nodeSelector={"zone": "z1"})
    assert isinstance(decide(views.of(pod.cls), snapshot.columns, candidates=1), Refusal)
    world.ledger.set_node(node("a", labels={"zone": "z1"}))
    snapshot.refresh()
    assert isinstance(decide(views.of(pod.cls), snapshot.columns, candidates=1), CandidateNodes)


# ---- against a plain reading of the rules

_KEYS = st.sampled_from(["zone", "disk", "gen"])
_VALUES = st.sampled_from(["a", "b", "1", "5", "9", "-3"])
_TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["k1", "k2"]),
            "value": st.sampled_from(["", "x", "y"]),
            "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        }
    ),
    max_size=2,
)
_TOLERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"key": st.sampled_from(["k1", "k2"]), "operator": st.just("Exists")},
            optional={"effect": st.sampled_from(["NoSchedule", "NoExecute"])},
        ),
        st.fixed_dictionaries(
            {"key": st.sampled_from(["k1", "k2"]), "value": st.sampled_from(["", "x"])},
            optional={"operator": st.just("Equal"), "effect": st.sampled_from(["", "NoSchedule"])},
        ),
        st.just({"operator": "Exists"}),
        st.just({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
    ),
    max_size=2,
)
_EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": _KEYS,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(_VALUES, min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": _KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {
            "key": _KEYS,
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.lists(st.sampled_from(["0", "5"]), min_size=1, max_size=1),
        }
    ),
)
_FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(["n0", "n1", "n7"]), min_size=1, max_size=2),
    }
)
_TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(_EXPRESSIONS, max_size=2),
        "matchFields": st.lists(_FIELDS, max_size=1),
    },
)
_PORTS = st.lists(
    st.fixed_dictionaries(
        {"containerPort": st.just(1), "hostPort": st.sampled_from([80, 81])},
        optional={
            "hostIP": st.sampled_from(["10.0.0.1", "0.0.0.0"]),
            "protocol": st.sampled_from(["TCP", "UDP"]),
        },
    ),
    max_size=1,
)
_REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "100m", "1", "2500m"]),
        "memory": st.sampled_from(["64Mi", "1Gi", "500M"]),
        "example.com/gpu": st.sampled_from(["1", "2"]),
        GPU: st.sampled_from(["300", "700", "1000", "2000", "1500"]),
    },
)
_DEVICES = st.sampled_from([{}, {GPU_INDEX: "0"}, {GPU_INDEX: "1"}, {GPU_INDEX: "0,1"}, {GPU_INDEX: "7"}])


@st.composite
def _pods(draw: st.DrawFn) -> dict[str, Any]:
    body = pod_json()
    body["metadata"]["annotations"] = draw(_DEVICES)
    container = {"name": "c", "resources": {"requests": draw(_REQUESTS)}, "ports": draw(_PORTS)}
    body["spec"]["containers"] = [container]
    if draw(st.booleans()):
        body["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": draw(_REQUESTS)}}]
    body["spec"]["tolerations"] = draw(_TOLERATIONS)
    if draw(st.booleans()):
        body["spec"]["nodeSelector"] = draw(st.dictionaries(_KEYS, _VALUES, max_size=1))
    if draw(st.booleans()):
        terms = draw(st.lists(_TERMS, min_size=1, max_size=2))
        required = {"nodeSelectorTerms": terms}
        body["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    return body


@st.composite
def _nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {
                "name": f"n{index}",
                "uid": f"n{index}",
                "labels": draw(st.dictionaries(_KEYS, _VALUES, max_size=2)),
            },
            "spec": {"taints": draw(_TAINTS), "unschedulable": draw(st.booleans())},
            "status": {
                "allocatable": {
                    "cpu": draw(st.sampled_from(["1", "4"])),
                    "memory": draw(st.sampled_from(["1Gi", "4Gi"])),
                    "pods": draw(st.sampled_from(["1", "10"])),
                    **draw(st.sampled_from([{}, {"example.com/gpu": "2"}])),
                    **draw(st.sampled_from([{}, {GPU: "1000"}, {GPU: "2000"}, {GPU: "3000"}])),
                }
            },
        }
        for index in range(draw(st.integers(1, 4)))
    ]


def bound(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], "nodeName": name}}


@examples(300)
@given(nodes=_nodes(), existing=st.lists(st.tuples(_pods(), st.integers(0, 3)), max_size=5), pending=_pods())
def test_columns_agree_with_a_plain_reading_of_every_rule(
    nodes: list[dict[str, Any]], existing: list[tuple[dict[str, Any], int]], pending: dict[str, Any]
) -> None:
    world = World(*(node_info(msgspec.convert(each, wire.Node)) for each in nodes))
    classes = PodClasses()
    placed: dict[str, list[dict[str, Any]]] = {each["metadata"]["name"]: [] for each in nodes}
    for body, index in existing:
        name = f"n{index % len(nodes)}"
        info = read_pod(bound(body, name), classes)
        world.ledger.set_pod(info, name)
        placed[name].append(body)
    decision = ask(world, read_pod(pending, classes), SPREAD, candidates=10)

    if plain_requests(pending).get(GPU) == 1500:
        assert isinstance(decision, Refusal)
        assert decision.message.endswith("nodes are available: " + problem_with(1500) + ".")
        assert decision.plugins == {"GPUShare"}
        return
    expected: dict[str, int] = {}
    plugins = set()
    fitting = set()
    for each in nodes:
        name = each["metadata"]["name"]
        plugin, reasons = plain_reasons(pending, each, placed[name])
        if plugin:
            plugins.add(plugin)
            for reason in reasons:
                expected[reason] = expected.get(reason, 0) + 1
        else:
            fitting.add(name)
    if fitting:
        assert isinstance(decision, CandidateNodes)
        assert {each.node_name for each in decision.candidates} == fitting
    else:
        texts = ", ".join(sorted(f"{count} {reason}" for reason, count in expected.items()))
        assert decision == Refusal(f"0/{len(nodes)} nodes are available: {texts}.", frozenset(plugins))


@examples(100)
@given(
    nodes=_nodes(),
    existing=st.lists(st.tuples(_pods(), st.integers(0, 3)), max_size=5),
    pending=_pods(),
)
def test_one_row_and_many_rows_get_the_same_answer(
    nodes: list[dict[str, Any]],
    existing: list[tuple[dict[str, Any], int]],
    pending: dict[str, Any],
) -> None:
    world = World(*(node_info(msgspec.convert(each, wire.Node)) for each in nodes))
    for body, index in existing:
        info = read_pod(bound(body, name := f"n{index % len(nodes)}"), world.classes)
        world.ledger.set_pod(info, name)
    columns, pod = world.ledger.columns, read_pod(pending, world.classes)
    rows = columns.all_rows()
    plugin: Any
    for base in ("agent", "default-scheduler"):
        profile = build_profile(ProfileSpec(scheduler_name="s", base=base))
        for plugin in profile.filters:
            state = plugin.prepare(pod.cls, Handle(world.ledger))
            if state is not None:
                together = plugin.feasible(state, columns, rows).tolist()
                alone = [plugin.feasible_row(state, columns, row) for row in rows.tolist()]
                assert alone == together, plugin.name
        for weighted in profile.scores:
            plugin = weighted.plugin
            state = plugin.prepare(pod.cls, Handle(world.ledger))
            if state is not None:
                scores = plugin.score(state, columns, rows).tolist()
                assert [plugin.score_row(state, columns, row) for row in rows.tolist()] == scores


def test_a_view_that_was_refreshed_row_by_row_equals_a_new_one() -> None:
    world = World(*(node(f"n{index}", cpu="8", labels={"zone": f"z{index % 2}"}) for index in range(6)))
    snapshot = Snapshot(world.ledger)
    views = {profile: ClassViews(profile, snapshot) for profile in (PACK, SPREAD)}
    soft = [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]
    pod = world.pod(requests={"cpu": "1", "memory": "1Gi"})
    for step in range(24):
        if step % 7 == 3:
            world.ledger.set_node(node(f"n{step % 6}", cpu="8", taints=soft if step % 2 else None))
        world.place(f"n{step * 5 % 6}", requests={"cpu": "500m", "memory": "256Mi"})
        snapshot.refresh()
        for profile, kept in views.items():
            old, new = kept.of(pod.cls), ClassViews(profile, snapshot).of(pod.cls)
            rows = new.feasible_rows(snapshot.columns)
            assert old.feasible_rows(snapshot.columns).tolist() == rows.tolist()
            assert old.totals(snapshot.columns, rows).tolist() == new.totals(snapshot.columns, rows).tolist()


SELF = {"matchLabels": {"app": "x"}}
ELSEWHERE: dict[str, Any] = {
    "spread": lambda key, when: {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": SELF}
        ]
    },
    "both": lambda key, rank: {
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELF},
            {"maxSkew": 1, "topologyKey": rank, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELF},
        ]
    },
    "required": lambda key, kind: {
        "affinity": {
            kind: {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": key, "labelSelector": SELF}
                ]
            }
        }
    },
    "preferred": lambda key, kind: {
        "affinity": {
            kind: {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 10, "podAffinityTerm": {"topologyKey": key, "labelSelector": SELF}}
                ]
            }
        }
    },
}


@pytest.mark.parametrize("most", [64, 3])
@pytest.mark.parametrize("key", ["zone", "kubernetes.io/hostname"])
@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("spread", "DoNotSchedule"),
        ("spread", "ScheduleAnyway"),
        ("both", "zone"),
        ("both", "kubernetes.io/hostname"),
        *((rule, kind) for rule in ("required", "preferred") for kind in ("podAffinity", "podAntiAffinity")),
    ],
)
@pytest.mark.parametrize("profile", [PACK, SPREAD])
def test_a_view_that_looks_at_other_rows_chooses_pod_after_pod_what_a_new_one_would(
    profile: Any, rule: str, how: str, key: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.facet_classes._MOST", most)
    monkeypatch.setattr("agent_scheduler.engine.decide.classview._SCANS_AFTER_MANY", 5)
    world = World(*(node(f"n{index}", labels={"zone": f"z{index % 4}"}) for index in range(30)))
    for index in (1, 2, 2, 8, 9, 17):
        world.place(f"n{index}", requests={"cpu": "1"})
    handle = Handle(world.ledger)
    snapshot = Snapshot(world.ledger, handle)
    views, spec = ClassViews(profile, snapshot), ELSEWHERE[rule](key, how)
    refused = 0
    for number in range(60):
        body = pod_json(requests={"cpu": "500m"}, **spec)
        body["metadata"]["labels"] = {"app": "x"}
        pod = read_pod(body, world.classes)
        if number == 20:
            world.ledger.set_node(node("n3", labels={"zone": "z1"}))
        elif number == 40:
            world.ledger.set_node(node("new", labels={"zone": "z2"}))
        snapshot.refresh()
        offset = number * 7 % 31
        kept, new = (
            decide(each.of(handle.class_of(pod)), snapshot.columns, candidates=3, offset=offset)
            for each in (views, ClassViews(profile, snapshot))
        )
        assert kept == new
        if isinstance(kept, Refusal):
            refused += 1
            world.ledger.remove_pod(next(iter(world.ledger.placements)))
        else:
            world.ledger.assume(pod, kept.candidates[0].row)
    assert refused < 40


@pytest.mark.parametrize("zones", [80, 20])
def test_classes_of_rows_are_made_once_however_many_they_are(
    zones: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    make = FacetClasses.__init__

    def count(self: FacetClasses, *args: Any) -> None:
        calls.append(1)
        make(self, *args)

    monkeypatch.setattr(FacetClasses, "__init__", count)
    world = World(*(node(f"n{index}", labels={"zone": f"z{index % zones}"}) for index in range(100)))
    handle = Handle(world.ledger)
    snapshot = Snapshot(world.ledger, handle)
    views, spec = ClassViews(PACK, snapshot), ELSEWHERE["preferred"]("zone", "podAntiAffinity")
    for _ in range(40):
        body = pod_json(requests={"cpu": "500m"}, **spec)
        body["metadata"]["labels"] = {"app": "x"}
        pod = read_pod(body, world.classes)
        snapshot.refresh()
        decision = decide(views.of(handle.class_of(pod)), snapshot.columns, candidates=3)
        assert isinstance(decision, CandidateNodes)
        world.ledger.assume(pod, decision.candidates[0].row)
    assert len(calls) == 1


def test_a_worker_keeps_fewer_views_of_a_larger_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.decide.VIEW_ROWS_KEPT", 64 * 20)
    world = World(*(node(f"n{index}") for index in range(10)))
    views = ClassViews(PACK, Snapshot(world.ledger))
    pods = [world.pod(requests={"cpu": f"{index}m"}) for index in range(1, 31)]
    kept = [views.of(pod.cls) for pod in pods]
    assert [views.of(pod.cls) is view for pod, view in zip(pods[-20:], kept[-20:], strict=True)] == [
        True
    ] * 20
    assert views.of(pods[0].cls) is not kept[0]
