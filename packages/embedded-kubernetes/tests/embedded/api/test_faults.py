"""Decisions of a plan of faults without a server: which request gets which fault, and how often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from embedded_kubernetes.fault_streams import Distortion, End, Pause, Step
from embedded_kubernetes.faults import Injector, Target, target_of
from embedded_kubernetes.requests import Request

from ..in_go import PROTOBUF, sent
from ..sockets import injector
from ..support import LEASES, NODES, PODS, cases, named, pod

BIND = Request("POST", f"{PODS}/a/binding")
WATCH = Request("GET", "/api/v1/pods", "watch=1&resourceVersion=50")


def struck(asked: Injector, request: Request, times: int) -> list[int]:
    """Return the numbers of those of `times` requests that get a fault, counted from 1."""
    return [number for number in range(1, times + 1) if asked(request) is not None]


@pytest.mark.parametrize(
    ("method", "path", "query", "target"),
    [
        ("GET", "/api/v1/pods", "", Target("list", "", "pods")),
        ("GET", "/api/v1/pods", "watch=true", Target("watch", "", "pods")),
        ("GET", "/api/v1/watch/namespaces/a/pods", "", Target("watch", "", "pods", "", "a")),
        ("HEAD", f"{PODS}/p", "", Target("get", "", "pods", "", "default", "p")),
        ("POST", f"{PODS}/p/binding", "", Target("create", "", "pods", "binding", "default", "p")),
        ("PUT", "/api/v1/namespaces/n/finalize", "", Target("update", "", "namespaces", "finalize", "", "n")),
        ("DELETE", NODES, "", Target("deletecollection", "", "nodes")),
        ("DELETE", "/api/v1/nodes/n%2D1", "", Target("delete", "", "nodes", "", "", "n-1")),
        ("PATCH", f"{LEASES}/l", "", Target("patch", "coordination.k8s.io", "leases", "", "default", "l")),
        ("GET", "/healthz", "", Target("get")),
        ("GET", "/apis/apps/v1", "", Target("get")),
    ],
)
def test_a_request_is_read_as_roles_read_it(method: str, path: str, query: str, target: Target) -> None:
    assert target_of(Request(method, path, query)) == target


@cases("""
    match | hits
    {} | true
    {verbs: [create, get]} | true
    {verbs: [get]} | false
    {methods: [POST]} | true
    {methods: [PUT]} | false
    {path: /api/v1/*/binding} | true
    {path: /api/v1/pods} | false
    {resource: pods/binding} | true
    {resource: pods} | false
    {resource: pods/*} | true
    {namespace: def*, name: a} | true
    {namespace: other} | false
    {name: b*} | false
    """)
def test_a_rule_is_about_requests_for_which_all_of_its_match_holds(match: Any, hits: bool) -> None:
    assert (injector({"match": match, "fault": {"drop": {}}})(BIND) is not None) is hits


def test_a_query_is_matched_as_it_was_sent() -> None:
    asked = injector({"match": {"query": "*limit=5&*"}, "fault": {"drop": {}}})
    assert asked(Request("GET", PODS, "limit=5&continue=x")) is not None
    assert asked(Request("GET", PODS, "limit=50&continue=x")) is None
    assert asked(Request("GET", PODS)) is None


def test_an_object_that_is_created_is_known_by_the_name_in_its_body() -> None:
    asked = injector({"match": {"name": "web-*"}, "fault": {"drop": {}}})
    assert asked(Request("POST", PODS, body=b'{"metadata":{"name":"web-1"}}')) is not None
    assert asked(Request("POST", PODS, body=sent(pod("web-2")), content_type=PROTOBUF)) is not None
    assert asked(Request("POST", PODS, body=b"no protobuf", content_type=PROTOBUF)) is None
    for body in (b'{"metadata":{"name":"db"}}', b'{"metadata":{}}', b"[]", b"no json"):
        assert asked(Request("POST", PODS, body=body)) is None


@cases("""
    often | numbers
    {} | [1, 2, 3, 4, 5, 6, 7, 8, 9]
    {every: 3} | [3, 6, 9]
    {after: 2, every: 3} | [5, 8]
    {after: 2, first: 3} | [3, 4, 5]
    {count: 2} | [1, 2]
    {after: 1, every: 2, first: 6, count: 2} | [3, 5]
    {probability: 0} | []
    {probability: 1, first: 2} | [1, 2]
    """)
def test_a_rule_says_which_of_the_requests_that_match_are_struck(often: Any, numbers: list[int]) -> None:
    asked = injector({"match": {"resource": "pods/binding"}, "fault": {"drop": {}}, **often})
    found = []
    for number in range(1, 10):
        assert asked(Request("GET", NODES)) is None, "what does not match is not counted"
        if asked(BIND) is not None:
            found.append(number)
    assert found == numbers
    assert asked.fired == {"drop": len(numbers)}


def test_the_same_seed_strikes_the_same_requests_whatever_other_rules_there_are() -> None:
    rule = {"match": {"name": "a"}, "probability": 0.3, "fault": {"drop": {}}}
    alone = struck(injector(rule), BIND, 100)
    assert 15 < len(alone) < 45
    assert struck(injector(rule, seed=2), BIND, 100) != alone
    beside = injector(rule, {"match": {"name": "b"}, "probability": 0.5, "fault": {"lose": {}}})
    found = []
    for number in range(1, 101):
        beside(Request("POST", f"{PODS}/b/binding"))
        if beside(BIND) is not None:
            found.append(number)
    assert found == alone


def test_the_first_rule_that_strikes_decides_and_the_next_one_does_not_see_the_request() -> None:
    asked = injector({"every": 2, "fault": {"drop": {}}}, {"every": 2, "fault": {"lose": {}}})
    kinds = ["drop" if fault.drop else "lose" for fault in map(asked, [BIND] * 8) if fault is not None]
    assert kinds == ["drop", "lose", "drop", "drop", "lose", "drop"]
    assert asked.report() == ["fault drop: fired 4 times", "fault lose: fired 2 times"]


@pytest.mark.parametrize("of", ["assigned", "deleting", "exists", "gated", "modified", "uid"])
def test_every_conflict_is_a_409_that_names_the_object(of: str) -> None:
    fault = injector({"fault": {"conflict": {"of": of}}})(BIND)
    assert fault.error.code == 409
    assert fault.error.reason == ("AlreadyExists" if of == "exists" else "Conflict")
    assert '"a"' in fault.error.message
    assert (fault.error.details or {})["name"] == "a"


def test_a_stale_list_is_asked_for_at_an_older_version_and_its_pages_with_it() -> None:
    asked = injector({"fault": {"stale": {"versions": 10}}})
    fault = asked(Request("GET", "/api/v1/pods", "limit=5"))
    first = fault.asked(Request("GET", "/api/v1/pods", "limit=5&labelSelector=a%3Db"), 100)
    version = {"resourceVersion": "90", "resourceVersionMatch": "Exact"}
    assert first.parameters == {"limit": "5", "labelSelector": "a=b", **version}
    page = Request("GET", "/api/v1/pods", "limit=5&continue=token")
    assert fault.asked(page, 100) is page
    assert fault.asked(WATCH, 100).parameters == {"watch": "1", "resourceVersion": "40"}
    assert fault.asked(Request("GET", "/api/v1/pods"), 4).parameters["resourceVersion"] == "1"
    assert asked(BIND) is None
    assert asked(Request("GET", f"{PODS}/a")) is None


# ---- open watches


def line(type_: str, version: int) -> bytes:
    obj = named(f"p{version}", kind="Pod", resourceVersion=str(version))
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"


LINES = [line("ADDED", 1), line("MODIFIED", 2), line("DELETED", 3), line("ADDED", 4)]


def distortion(fault: dict[str, Any]) -> tuple[Injector, Distortion]:
    asked = injector({"fault": fault})
    assert asked(BIND) is None, "a fault of watches leaves all else alone"
    found = asked(WATCH)
    assert found.distortion is not None
    return asked, found.distortion


def fed(fault: dict[str, Any], batches: Sequence[Sequence[bytes]]) -> list[Step]:
    """Return all steps, with consecutive bytes joined."""
    _, found = distortion(fault)
    steps: list[Step] = []
    for batch in ((), *batches):
        for step in found.feed(batch):
            if steps and isinstance(step, bytes) and isinstance(steps[-1], bytes):
                steps[-1] += step
            elif step != b"":
                steps.append(step)
    return steps


WHOLE = b"".join(LINES)
TWO = b"".join(LINES[:2])


@pytest.mark.parametrize(
    ("fault", "steps"),
    [
        ({"stall": {"events": 2}}, [TWO, Pause(math.inf), WHOLE[len(TWO) :]]),
        ({"stall": {"bytes": 0, "lasts": "2s"}}, [Pause(2), WHOLE]),
        ({"stall": {"bytes": 70, "lasts": "2s"}}, [WHOLE[:70], Pause(2), WHOLE[70:]]),
        ({"hold": {"back": "1s"}}, None),
        ({"duplicate": {"every": 2}}, [TWO + LINES[1] + LINES[2] + LINES[3] * 2]),
        ({"replay": {"events": 3, "last": 2}}, [WHOLE[: -len(LINES[3])] + LINES[1] + LINES[2] + LINES[3]]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_is_sent_does_not_depend_on_how_the_lines_came(fault: Any, steps: Any, size: int) -> None:
    batches = [LINES[at : at + size] for at in range(0, 4, size)]
    if steps is None:
        steps = [step for batch in batches for step in (Pause(1), b"".join(batch))]
    assert fed(fault, batches) == steps


@pytest.mark.parametrize("kind", ["close", "reset"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_watch_ends_behind_any_event_and_any_byte(kind: str, size: int) -> None:
    batches = [LINES[at : at + size] for at in range(0, 4, size)]
    end = End.CLOSE if kind == "close" else End.RESET
    for events in range(5):
        steps = fed({kind: {"events": events}}, batches)
        assert steps[: 1 + (events > 0)] == [*([b"".join(LINES[:events])] if events else []), end]
    for size_ in range(0, len(WHOLE) + 1, 7):
        steps = fed({kind: {"bytes": size_}}, batches)
        assert steps[: 1 + (size_ > 0)] == [*([WHOLE[:size_]] if size_ else []), end]


def test_the_spread_moves_the_place_and_stays_within_its_bounds() -> None:
    asked = injector({"fault": {"close": {"events": 1, "spread": 2}}})
    found = set()
    for _ in range(60):
        fault = asked(WATCH)
        found.add(fault.distortion.feed(LINES).index(End.CLOSE))
    assert found == {1, 2, 3}


def test_an_expired_watch_says_so_and_ends() -> None:
    sent, end = fed({"expire": {"events": 1}}, [LINES[:1]])
    assert isinstance(sent, bytes)
    first, error = sent.splitlines(keepends=True)
    assert first == LINES[0]
    status = orjson.loads(error)
    assert (status["type"], status["object"]["code"], status["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert end is End.CLOSE


@pytest.mark.parametrize("kind", ["truncate", "garble", "unknownType"])
def test_one_line_is_spoiled_and_the_others_pass(kind: str) -> None:
    for batches in ([LINES], [[each] for each in LINES]):
        (sent,) = fed({kind: {"events": 2}}, batches)
        assert isinstance(sent, bytes)
        lines = sent.splitlines(keepends=True)
        assert len(lines) == 4
        assert [lines[0], lines[1], lines[3]] == [LINES[0], LINES[1], LINES[3]]
        if kind == "unknownType":
            event = orjson.loads(lines[2])
            assert event == {**orjson.loads(LINES[2]), "type": "MOVED"}
        else:
            with pytest.raises(orjson.JSONDecodeError):
                orjson.loads(lines[2])


def test_a_lost_deletion_is_followed_by_a_watch_that_is_too_old() -> None:
    asked, lossy = distortion({"loseDelete": {}})
    assert asked(WATCH) is not None
    assert lossy.feed(LINES) == [LINES[0], LINES[1], End.CLOSE]
    assert asked.fired == {"loseDelete": 1}
    other = asked(Request("GET", NODES, "watch=1"))
    assert other.error is None
    again = asked(Request("GET", "/api/v1/pods", "watch=1&resourceVersion=51"))
    assert again.error.code == 410
    assert asked(WATCH) is not None, "once"
    _, lossy = distortion({"loseDelete": {"deletions": 2}})
    assert lossy.feed(LINES) == [LINES[0], LINES[1]]
    assert lossy.feed(LINES) == [End.CLOSE]


def test_a_fault_of_a_watch_counts_when_it_happens() -> None:
    asked, cut = distortion({"close": {"events": 3}})
    cut.feed(LINES[:2])
    assert asked.fired == {"close": 0}
    cut.feed(LINES[2:])
    assert asked.fired == {"close": 1}
