"""Each row of docs/bind-outcomes.md, against a server that answers, loses answers and resets as scripted."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from kube_client.bind import BindOutcome, BindPolicy, BindResult, Binds, UnknownOutcome
from kube_client.budget import Budget
from kube_client.driver import AlreadySent
from kube_client.errors import Failure, FailureClass
from kube_client.retry import Backoff
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Hang,
    Request,
    Reset,
    Script,
    answering,
    by_method,
    status,
)
from kube_client.transport import NotSent, PodKey

from . import objects
from .recordings import recorded

CREATED = Answer(201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201})
CONFLICT = status(409, "Conflict", "whatever the server likes to say")
GONE = status(404, "NotFound", 'pods "p" not found')


def pod(**more: Any) -> Answer:
    """The pod as the API server has it."""
    return Answer(body=objects.pod(**more))


def server(posts: list[Action], gets: list[Action] | None = None) -> Script:
    return by_method(POST=posts, GET=gets or [pod()])


POD = PodKey("t", "p", "u")
POLICY = BindPolicy(request_timeout=10, deadline=60, backoff=Backoff(initial=1, cap=8, jitter=0))


def binds_of(transport: Any, **options: Any) -> Binds:
    """Return binds to any node unless told otherwise."""
    return Binds(transport, **{"allowed": None, **options})


async def bound(
    posts: list[Action], gets: list[Action] | None = None, *, time: FakeTime | None = None, **options: Any
) -> tuple[BindResult, list[Request], FakeTime]:
    time = time or FakeTime()
    api, transport = answering(server(posts, gets))
    api.warm = True
    given = {name: options.pop(name) for name in ("already_sent", "unknown") if name in options}
    binds = binds_of(transport, **{"policy": POLICY, "timing": time.timing} | options)
    if _BEGINS.get() and not given and options.keys() <= {"annotations", "policy"}:
        told: asyncio.Future[BindResult | AlreadySent] = asyncio.get_running_loop().create_future()
        assert binds.send_bind(POD, "n1", told.set_result)
        already_sent = await told
        if isinstance(already_sent, BindResult):
            return already_sent, api.requests, time
        given["already_sent"] = already_sent
    return await binds.bind(POD, "n1", **given), api.requests, time


_BEGINS: ContextVar[bool] = ContextVar("begins", default=False)


@pytest.fixture(autouse=True, params=[False, True], ids=["awaited", "already sent"])
def _begins(request: pytest.FixtureRequest) -> None:
    """Whatever becomes of the first request, it is the same whether that was awaited or only sent."""
    _BEGINS.set(request.param)


def methods(requests: list[Request]) -> list[str]:
    return [request.method for request in requests]


BUSY = status(429, "TooManyRequests")
BUSY.headers["Retry-After"] = "3"
SENT, ASKED, AGAIN = ["POST"], ["POST", "GET"], ["POST", "GET", "POST"]
BOUND, ELSEWHERE = pod(node="n1"), pod(node="n2")
#: The bind may have been carried out.
LOST: list[Action] = [status(500), status(504), Reset(), Hang(), Answer(201, {"a": 1}, cut=2)]


@pytest.mark.parametrize(
    ("posts", "gets", "outcome", "sent", "slept"),
    [
        ([CREATED], [pod()], BindOutcome.BOUND, SENT, []),
        ([CONFLICT, CREATED], [pod(gates=[])], BindOutcome.BOUND, AGAIN, [1]),
        ([GONE], [GONE], BindOutcome.GONE, ASKED, []),
        ([GONE, CREATED], [pod()], BindOutcome.BOUND, AGAIN, [1]),
        ([BUSY, BUSY, CREATED], [pod()], BindOutcome.BOUND, SENT * 3, [3, 3]),
        ([status(401, "Unauthorized"), CREATED], [pod()], BindOutcome.BOUND, SENT * 2, [1]),
        *(([lost], [BOUND], BindOutcome.BOUND, ASKED, []) for lost in LOST),
        *(([lost], [ELSEWHERE], BindOutcome.BOUND_ELSEWHERE, ASKED, []) for lost in LOST),
        # It is repeated only once the pod is seen to wait.
        *(([lost, CREATED], [pod()], BindOutcome.BOUND, AGAIN, [1]) for lost in (*LOST, status(503))),
        *(
            ([Hang()], [unsaid, unsaid, BOUND], BindOutcome.BOUND, [*SENT, *["GET"] * 3], [1, 2])
            for unsaid in (Reset(), status(503), status(429), Answer(200, b"no pod"))
        ),
        # It reaches the server after all, and its repetition meets it as a conflict.
        ([Hang(), CONFLICT], [pod(), BOUND], BindOutcome.BOUND, [*AGAIN, "GET"], [1]),
        ([Reset()], [pod(deleted="2026-01-01T00:00:00Z")], BindOutcome.DELETING, ASKED, []),
    ],
)
@pytest.mark.promise("S2")
async def test_what_answers_come_to(
    posts: list[Action], gets: list[Action], outcome: BindOutcome, sent: list[str], slept: list[float]
) -> None:
    result, requests, time = await bound([*posts], [*gets])
    assert result.outcome is outcome
    assert result.node == (gets[-1].body["spec"]["nodeName"] if gets[-1] in (BOUND, ELSEWHERE) else result.node)
    assert result.confirmed is (requests[-1].method == "GET")
    assert result.attempts == sent.count("POST")
    assert (methods(requests), time.slept) == (sent, slept)
    assert requests[0].path == "/api/v1/namespaces/t/pods/p/binding"


@pytest.mark.promise("S2")
async def test_the_binding_names_pod_uid_and_node() -> None:
    _, requests, _ = await bound([CREATED])
    assert requests[0].json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "t", "name": "p", "uid": "u"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_the_binding_has_the_annotations_that_its_pod_is_bound_with_at_each_try() -> None:
    found: dict[str, dict[str, str]] = {"u": {"a.example.com/b": "0,1"}, "other": {"x": "y"}}
    busy = status(503, "ServiceUnavailable", "try again")
    for posts in ([CREATED], [busy, CREATED]):
        result, requests, _ = await bound([*posts], annotations=found)
        assert result.outcome is BindOutcome.BOUND
        sent = [request.json["metadata"] for request in requests if request.method == "POST"]
        expected = {"namespace": "t", "name": "p", "uid": "u", "annotations": {"a.example.com/b": "0,1"}}
        assert sent == [expected] * len(posts)
    _, requests, _ = await bound([CREATED], annotations={"other": {"x": "y"}})
    assert "annotations" not in requests[0].json["metadata"]


@pytest.mark.parametrize(
    ("state", "outcome", "node"),
    [
        (pod(node="n1"), BindOutcome.BOUND, "n1"),
        (pod(node="n2"), BindOutcome.BOUND_ELSEWHERE, "n2"),
        (pod(uid="other"), BindOutcome.RECREATED, None),
        (pod(uid="other", node="n1"), BindOutcome.RECREATED, None),
        (pod(deleted="2026-01-01T00:00:00Z"), BindOutcome.DELETING, None),
        (pod(node="n1", deleted="2026-01-01T00:00:00Z"), BindOutcome.BOUND, "n1"),
        (pod(gates=["g"]), BindOutcome.GATED, None),
        (GONE, BindOutcome.GONE, None),
    ],
)
async def test_a_conflict_means_what_the_pod_says(state: Answer, outcome: BindOutcome, node: str | None) -> None:
    result, requests, time = await bound([CONFLICT], [state])
    assert (result.outcome, result.node, result.confirmed) == (outcome, node, True)
    assert methods(requests) == ["POST", "GET"]
    assert time.slept == []


#: 404s that are not about the pod: kube-apiserver's where a path leads nowhere, a load balancer's, a namespace's.
NOT_ABOUT_IT = [
    Answer(404, b"404 page not found"),
    Answer(404, b"default backend - 404"),
    status(404, "NotFound", name="t", kind="namespaces"),
    status(404, "NotFound", name="p", kind="pods", uid="another"),
]


@pytest.mark.parametrize("lie", NOT_ABOUT_IT)
async def test_a_404_that_is_not_about_the_pod_does_not_lose_it(lie: Answer) -> None:
    result, _, _ = await bound([lie, lie, CREATED], [lie, lie, pod()])
    assert result.outcome in (BindOutcome.BOUND, BindOutcome.UNKNOWN)
    if result.outcome is BindOutcome.UNKNOWN:
        # The API server itself would not say what has become of the pod: it is asked again later.
        assert result.unknown is not None
        result, _, _ = await bound([CREATED], [pod(node="n1")], unknown=result.unknown)
        assert result.outcome is BindOutcome.BOUND


@pytest.mark.parametrize("lie", NOT_ABOUT_IT)
async def test_a_pod_is_pending_until_the_api_server_shows_its_node(lie: Answer) -> None:
    async def pending(answer: Action) -> bool | None:
        return await binds_of(answering(server([CREATED], [answer]))[1]).is_pending(POD)

    assert await pending(pod()) is True
    assert await pending(pod(node="n1")) is False
    for unknown in (lie, GONE, pod(uid="other"), Answer(200, b"{}"), Answer(200, b"<html>"), status(403)):
        assert await pending(unknown) is None


@pytest.mark.parametrize("lie", [LOGIN_PAGE, Answer(409, b"conflict")])
async def test_what_is_not_from_the_api_server_binds_and_refuses_nothing(lie: Answer) -> None:
    result, requests, _ = await bound([lie, CREATED], [lie, pod()])
    assert result.outcome is BindOutcome.BOUND
    assert methods(requests) == ["POST", "GET", "GET", "POST"]
    result, requests, _ = await bound([lie], [lie, pod(node="n1")])
    assert (result.outcome, result.confirmed) == (BindOutcome.BOUND, True)


@pytest.mark.parametrize("code", [302, 400, 403, 405, 413, 422])
async def test_a_refusal_is_final_and_says_why(code: int) -> None:
    result, requests, _ = await bound([status(code, "Because", "of this")])
    assert result.outcome is BindOutcome.REFUSED
    assert result.failure is not None and result.failure.message == "of this"
    assert methods(requests) == ["POST"]


@pytest.mark.parametrize(
    ("posts", "gets", "then"),
    [
        ([Hang()], [status(503)], None),
        # Asking again is of no use: it comes to this once nothing can be carried out any more.
        ([Reset()], [status(403, "Forbidden")], BindOutcome.UNAVAILABLE),
        # A lost bind of a pod that is gated may still be carried out.
        ([Reset()], [pod(gates=["g"])], BindOutcome.GATED),
    ],
)
async def test_a_doubt_that_cannot_be_settled_keeps_the_capacity(
    posts: list[Action], gets: list[Action], then: BindOutcome | None
) -> None:
    result, requests, time = await bound([*posts], [*gets])
    assert result.outcome is BindOutcome.UNKNOWN and result.unknown is not None
    assert (result.unknown.then and result.unknown.then.outcome) is then
    assert methods(requests).count("POST") == 1 and sum(time.slept) < 60
    assert then is None or (methods(requests) == ASKED and result.unknown.settles > time.now)


async def test_a_bind_that_is_throttled_until_the_deadline_was_surely_not_carried_out() -> None:
    result, requests, time = await bound([status(429)])
    assert result.outcome is BindOutcome.UNAVAILABLE
    assert set(methods(requests)) == {"POST"}
    assert sum(time.slept) < 60


#: An earlier call could not even ask.
UNASKED = UnknownOutcome(settles=0.0)
REFUSED = BindResult(BindOutcome.REFUSED, failure=Failure(FailureClass.PERMANENT, 403, "Forbidden", "not you"))


@pytest.mark.parametrize(("gets", "sent"), [([BOUND], ["GET"]), ([status(500), pod()], ["GET", "GET", "POST"])])
async def test_a_bind_in_doubt_is_asked_about_and_sent_again_once_the_pod_is_seen_to_wait(
    gets: list[Action], sent: list[str]
) -> None:
    result, requests, _ = await bound([CREATED], [*gets], unknown=UNASKED)
    assert (result.outcome, methods(requests)) == (BindOutcome.BOUND, sent)


@pytest.mark.parametrize("refusal", [status(429), status(403, "Forbidden")])
async def test_what_refuses_a_bind_in_doubt_frees_no_capacity_unless_the_pod_is_seen_to_wait(refusal: Answer) -> None:
    result, requests, _ = await bound([refusal], [status(503)], unknown=UNASKED)
    assert result.outcome is BindOutcome.UNKNOWN
    assert set(methods(requests)) == {"GET"}
    result, _, _ = await bound([refusal], [pod()], unknown=UNASKED)
    assert result.outcome in (BindOutcome.REFUSED, BindOutcome.UNAVAILABLE)


@pytest.mark.parametrize("lost", [Reset(), Hang(), status(504, "Timeout"), Answer(502, b"<html>"), status(408)])
@pytest.mark.parametrize("refusal", [status(429), status(500, "InternalError"), status(403, "Forbidden")])
@pytest.mark.promise("S1")
async def test_no_capacity_is_freed_while_a_bind_that_got_no_answer_may_still_be_carried_out(
    lost: Action, refusal: Answer
) -> None:
    policy = replace(POLICY, deadline=15)
    result, _, time = await bound([lost, refusal], [pod()], policy=policy)
    assert result.outcome is BindOutcome.UNKNOWN
    unknown = result.unknown
    assert unknown is not None and unknown.then is not None
    assert unknown.then.outcome in (BindOutcome.REFUSED, BindOutcome.UNAVAILABLE)
    assert unknown.settles == time.now + 60 - sum(time.slept)

    # It is carried out late, as we see then.
    time.now = unknown.settles - 1
    later, requests, _ = await bound([CREATED], [pod(node="n1")], unknown=unknown, time=time)
    assert later.outcome is BindOutcome.BOUND
    # It is not. One that asks too early cannot know.
    early, requests, _ = await bound([CREATED], [pod()], unknown=unknown, time=time)
    assert early.outcome is BindOutcome.UNKNOWN and early.unknown == unknown
    time.now = unknown.settles
    at_last, requests, _ = await bound([CREATED], [pod()], unknown=unknown, time=time)
    assert at_last == unknown.then
    assert methods(requests) == ["GET"]


async def test_a_doubt_that_outlasts_an_outage_keeps_what_it_comes_to() -> None:
    unknown = UnknownOutcome(settles=0.0, then=REFUSED)
    result, requests, _ = await bound([CREATED], [status(503, "ServiceUnavailable")], unknown=unknown)
    assert result.outcome is BindOutcome.UNKNOWN and result.unknown == unknown
    assert set(methods(requests)) == {"GET"}


async def test_what_the_server_answered_itself_has_ended_and_leaves_no_doubt() -> None:
    policy = replace(POLICY, deadline=15)
    result, _, _ = await bound([status(500, "InternalError", "a webhook failed")], [pod()], policy=policy)
    assert result.outcome is BindOutcome.UNAVAILABLE
    assert result.failure is not None and result.failure.message == "a webhook failed"


async def test_what_was_never_sent_is_sent_again_without_asking() -> None:
    time, failures = FakeTime(), [NotSent("no connection")] * 3

    def unreachable(request: Request) -> Action:
        if failures:
            raise failures.pop()
        return CREATED

    api, transport = answering(unreachable)
    result = await binds_of(transport, policy=POLICY, timing=time.timing).bind(POD, "n1")
    assert (result.outcome, result.attempts) == (BindOutcome.BOUND, 4)
    assert methods(api.requests) == ["POST"] * 4
    assert time.slept == [1, 2, 4]


async def test_a_backoff_holds_no_place_in_the_budget() -> None:
    """Otherwise a few binds that meet a failing server would stop all others."""
    budget = Budget(concurrency=1)
    _, transport = answering(server([status(429), CREATED]))

    async def one(name: str) -> BindResult:
        return await binds_of(transport, policy=POLICY, budget=budget).bind(PodKey("t", name, "u"), "n1")

    slow = asyncio.create_task(one("slow"))
    await asyncio.sleep(0.5)
    quick = await asyncio.wait_for(one("quick"), 0.1)
    assert quick.outcome is BindOutcome.BOUND and not slow.done()
    assert (await slow).outcome is BindOutcome.BOUND


async def test_waiting_for_the_budget_does_not_count_towards_the_deadline() -> None:
    time = FakeTime()
    budget = Budget(qps=0.01, burst=1, timing=time.timing)
    async with budget.request():
        pass
    result, _, _ = await bound([status(429), CREATED], time=time, budget=budget)
    assert time.slept[0] == pytest.approx(100)
    assert result.attempts == 2


async def test_the_deadline_counts_from_the_first_request_on() -> None:
    """A first request that took long leaves less time for those after it."""
    time = FakeTime()

    def slow(request: Request) -> Action:
        if time.now < 1050:
            time.now += 50
        return status(429)

    policy = replace(POLICY, request_timeout=60)
    result = await binds_of(answering(slow)[1], policy=policy, timing=time.timing).bind(POD, "n1")
    assert result.outcome is BindOutcome.UNAVAILABLE
    assert time.slept == [1, 2, 4]


RECORDED_CASES = {
    "bind": (BindOutcome.BOUND, None),
    "bind twice same node: 409": (BindOutcome.BOUND, pod(node="n1")),
    "bind twice other node: 409": (BindOutcome.BOUND_ELSEWHERE, pod(node="n2")),
    "bind missing pod: 404": (BindOutcome.GONE, GONE),
    "bind with wrong uid: 409": (BindOutcome.RECREATED, pod(uid="other")),
    "bind gated pod: refused": (BindOutcome.GATED, pod(gates=["g"])),
    "bind terminating pod: 409": (BindOutcome.DELETING, pod(deleted="2026-01-01T00:00:00Z")),
}


@pytest.mark.parametrize("name", RECORDED_CASES)
async def test_what_a_real_server_answered_is_understood(name: str) -> None:
    response = next(e["response"] for e in recorded() if e["name"] == name)
    outcome, state = RECORDED_CASES[name]
    answer = Answer(response["status"], response["body"])
    result, _, _ = await bound([answer], [state] if state else None)
    assert result.outcome is outcome


async def test_a_bind_that_may_not_be_sent_is_not_sent() -> None:
    result, requests, _ = await bound([CREATED], allowed=lambda _node: False)
    assert (result.outcome, result.attempts, requests) == (BindOutcome.UNAVAILABLE, 0, [])
    api, transport = answering(server([CREATED]))
    api.warm = True
    told: list[BindResult | AlreadySent] = []
    assert not binds_of(transport, allowed=lambda _node: False).send_bind(POD, "n1", told.append)
    assert not binds_of(transport, budget=Budget(qps=1)).send_bind(POD, "n1", told.append)
    assert (api.requests, told) == ([], [])
    assert binds_of(transport, allowed=lambda _node: True).send_bind(POD, "n1", told.append)
    assert len(api.requests) == 1


async def test_a_bind_that_may_no_longer_be_sent_after_it_waited_for_the_budget_is_not_sent() -> None:
    """A node may leave our shard meanwhile."""
    time = FakeTime()
    budget = Budget(qps=0.01, burst=1, timing=time.timing)
    async with budget.request():
        pass
    before = time.now
    result, requests, _ = await bound([CREATED], time=time, budget=budget, allowed=lambda _node: time.now < before + 50)
    assert time.now > before + 50
    assert (result.outcome, result.attempts, requests) == (BindOutcome.UNAVAILABLE, 0, [])


async def test_a_bind_in_doubt_is_not_sent_again_when_it_may_no_longer_be() -> None:
    may = [True, True, False]
    result, requests, time = await bound([Reset()], allowed=lambda _node: may.pop(0))
    assert methods(requests) == ["POST", "GET"]
    assert result.outcome is BindOutcome.UNKNOWN
    assert result.unknown is not None and result.unknown.settles > time.now
    assert result.unknown.then is not None and result.unknown.then.outcome is BindOutcome.UNAVAILABLE
