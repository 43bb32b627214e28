"""What GPUs have free, device by device: the rules by themselves, and as the ledger counts them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.gpus import (
    ANNOTATION,
    NO_GPUS,
    NODE_LIMIT,
    RESOURCE,
    WHOLE,
    after_best_fit,
    all_free,
    choose,
    fits,
    indices_in,
    problem_with,
    text_of,
    without,
)
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, node
from tests.support.examples import examples

pytestmark = pytest.mark.promise("S38")

#: What devices have free; below 0 where others put more there than they have.
FREE = st.lists(st.sampled_from([-200, 0, 1, 299, 300, 500, 700, 999, 1000, 1000, 1000]), max_size=6).map(tuple)
AMOUNT = st.sampled_from([1, 300, 500, 700, 999, 1000, 2000, 3000, 5000])


def plain_choices(free: tuple[int, ...], amount: int) -> list[tuple[int, ...]]:
    """Every set of devices that the pod could be given."""
    number, each = (1, amount) if amount < 1000 else (amount // 1000, 1000)
    return [
        chosen
        for chosen in itertools.combinations(range(len(free)), number)
        if all(free[index] >= each for index in chosen)
    ]


@examples(300)
@given(free=FREE, amount=AMOUNT)
def test_a_pod_is_given_devices_with_room_the_fullest_for_a_share(free: tuple[int, ...], amount: int) -> None:
    choices, given_ = plain_choices(free, amount), choose(free, amount)
    assert fits(free, amount) is bool(choices)
    if not choices:
        assert given_ == ()
        return
    assert given_ in choices
    if amount < WHOLE:
        least = min(free[index] for (index,) in choices)
        assert given_ == next(chosen for chosen in choices if free[chosen[0]] == least)
    else:
        assert len(set(given_)) == amount // WHOLE and all(free[index] == WHOLE for index in given_)
        assert given_ == choices[0], "the first that nobody uses"
    left = without(free, given_, amount)
    assert sum(free) - sum(left) == amount
    assert all(now == before for index, (now, before) in enumerate(zip(left, free, strict=True)) if index not in given_)
    assert all(left[index] >= 0 for index in given_)


@examples(300)
@given(free=FREE, amount=AMOUNT)
def test_the_sorted_form_agrees_with_the_devices_themselves(free: tuple[int, ...], amount: int) -> None:
    then = without(free, choose(free, amount), amount)
    assert after_best_fit(tuple(sorted(free)), amount) == tuple(sorted(then))


def test_a_node_offers_whole_devices() -> None:
    assert all_free(0) == all_free(999) == NO_GPUS
    assert all_free(2999) == (1000, 1000)


def test_a_device_that_the_node_does_not_have_is_left_out() -> None:
    assert without((1000, 400), (1, 7), 300) == (1000, 100)
    assert without((), (0,), 300) == ()


@given(st.lists(st.integers(0, 255), unique=True, min_size=1).map(sorted))
def test_what_the_annotation_says_is_what_was_given(indices: list[int]) -> None:
    assert indices_in(text_of(tuple(indices)), len(indices) * WHOLE) == tuple(indices)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0,)),
        ("2,0", (0, 2)),
        ("1,1", (1,)),
        ("007", (7,)),
        ("", ()),
        ("all", ()),
        ("-1", ()),
        ("0,", ()),
        ("0, 1", ()),
        ("0;1", ()),
        ("1.5", ()),
        ("1000", ()),
        ("99999999999999999999999", ()),
        ("\u0663", ()),
        ("\u00b2", ()),
    ],
)
def test_an_annotation_is_read_as_indices_or_not_at_all(text: str, expected: tuple[int, ...]) -> None:
    assert indices_in(text, 8 * WHOLE) == expected


@pytest.mark.parametrize(("amount", "held"), [(1, 1), (999, 1), (1000, 1), (1500, 1), (2000, 2), (3000, 3), (9000, 8)])
def test_an_annotation_takes_no_more_devices_than_its_pod_requests(amount: int, held: int) -> None:
    world = World(gpu_node(offered=8000))
    stranger = pod(world, "p", amount, "7,6,5,4,3,2,1,0", "a")
    assert stranger.gpus == tuple(range(held))
    world.ledger.set_pod(stranger, "a")
    assert free(world) == (1000 - min(amount, 1000),) * held + (1000,) * (8 - held)


@pytest.mark.parametrize(
    ("amount", "allowed"), [*((each, True) for each in (0, 1, 300, 1000, 2000, 8000)), (1001, False), (1500, False)]
)
def test_shares_of_one_and_whole_ones_can_be_asked_for_and_else_it_is_told_what_can(amount: int, allowed: bool) -> None:
    why = (
        f"agent-scheduler.io/gpu-milli: {amount} is neither a share of one GPU nor a number of whole ones; "
        "allowed: up to 1000, or a multiple of it"
    )
    assert problem_with(amount) == ("" if allowed else why)


# ---- nodes and pods


def gpu_node(name: str = "a", offered: int = 2000, **more: Any) -> Any:
    return node(name, extended={RESOURCE: str(offered)} if offered else {}, **more)


def pod(world: World, uid: str, amount: int, devices: str | None = None, node_name: str = "") -> PodInfo:
    requests = {RESOURCE: str(amount)} if amount else {}
    annotations = None if devices is None else {ANNOTATION: devices}
    return world.pod(uid, uid=uid, requests=requests, annotations=annotations, nodeName=node_name or None)


def free(world: World, name: str = "a") -> tuple[int, ...]:
    assert contradictions(world.ledger) == []
    columns, row = world.ledger.columns, world.ledger.rows[name]
    left = columns.gpus.get(row, NO_GPUS)
    assert columns.gpu_most[row] == max(left, default=0) and columns.gpu_whole[row] == left.count(WHOLE)
    return left


def test_a_node_of_too_many_gpus_is_said_and_counts_as_the_most_that_can_be_known() -> None:
    info = gpu_node(offered=NODE_LIMIT + 1000)
    assert info.allocatable[RESOURCE] == NODE_LIMIT
    assert "257000 is for more than 256 GPUs" in " ".join(info.errors)


def test_a_pod_has_devices_only_of_a_node_and_of_gpus_that_it_asks_for() -> None:
    world = World()
    assert pod(world, "p", 500, "1", "a").gpus == (1,)
    assert pod(world, "p", 500, "1").gpus == ()
    assert pod(world, "p", 0, "1", "a").gpus == ()
    assert pod(world, "p", 500, None, "a").gpus == ()
    assert pod(world, "p", 500, "one", "a").gpus == ()


def test_devices_of_a_pod_that_is_gone_are_free_again() -> None:
    world = World(gpu_node())
    for uid in ("p", "q"):
        world.ledger.assume(pod(world, uid, 600), 0)
    assert free(world) == (400, 400)
    assert world.ledger.forget("p") == "a" and world.ledger.bound_with.keys() == {"q"}
    assert free(world) == (1000, 400)
    world.ledger.confirm("q")
    world.ledger.remove_pod("q")
    assert free(world) == (1000, 1000)


def test_devices_that_are_named_are_given_rather_than_chosen_ones() -> None:
    world = World(gpu_node(offered=3000))
    world.ledger.assume(pod(world, "p", 2000), 0, (1, 2))
    assert free(world) == (1000, 0, 0)
    assert world.ledger.bound_with == {"p": {ANNOTATION: "1,2"}}


def test_numbers_of_a_ledger_that_are_wrong_are_found() -> None:
    world = World(gpu_node())
    world.ledger.assume(pod(world, "p", 600), 0)
    world.ledger.columns.set_gpus(0, (1000, 400))
    assert contradictions(world.ledger) == ["node a: GPUs are out of step with its pods"]


def test_the_annotation_is_read_beside_those_of_others() -> None:
    annotations = {"agent-scheduler.io/gpu-index": "3", "example.com/other": "x"}
    made = World().pod(requests={RESOURCE: "300"}, annotations=annotations, nodeName="a")
    assert made.gpus == (3,)
