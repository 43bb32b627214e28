"""Binds a pod to a node and determines the outcome.

A bind must be neither lost nor repeated, over a network that may lose the response. Only a success response from the
API server means "bound" by itself. In every other case the pod is read (GET, by UID), and its state decides. The
message of a 409 is never parsed, so it may have any wording. docs/bind-outcomes.md has the whole table.

The API server checks UID, deletion, existing node and gates, but neither capacity nor the existence of the node
(`BindingREST` in kube-apiserver 1.36). The ledger accounts for capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import msgspec

from kube_client.answers import RequestInfo, Verb, read
from kube_client.budget import UNLIMITED, Budget
from kube_client.driver import AlreadySent, Driver, Operation, Send, ask, pause, send_once
from kube_client.errors import UNREADABLE, Failure, FailureClass, ResponseOrigin, from_middlebox
from kube_client.retry import REAL, Backoff, Clock, Timing
from kube_client.transport import PodIdentifier, Response, Transport, TransportError, pod_path, start_of


class BindOutcome(Enum):
    """The outcome of `bind`.

    Only UNKNOWN leaves the question open: the capacity must be kept until the watch shows the pod's state, or a later
    call with the `UnknownOutcome` resolves it. After REFUSED and UNAVAILABLE the bind was not and will not be carried
    out. All others are the state of the pod.
    """

    BOUND = "bound"
    BOUND_ELSEWHERE = "bound elsewhere"
    RECREATED = "recreated"
    DELETING = "deleting"
    GATED = "gated"
    GONE = "gone"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"

    # Enum's own `__hash__` runs in Python, and each bind is counted by its outcome.
    __hash__ = object.__hash__


class BindResult(msgspec.Struct, frozen=True):
    """The result of a bind. `node` is the pod's node if known; `attempts` counts POSTs; `failure` is the last one.

    `confirmed` means that the outcome was read from the pod, not from the response to the bind. `unknown` is set for
    UNKNOWN only.
    """

    outcome: BindOutcome
    node: str | None = None
    attempts: int = 1
    failure: Failure | None = None
    confirmed: bool = False
    unknown: UnknownOutcome | None = None


class UnknownOutcome(msgspec.Struct, frozen=True):
    """The open question after an UNKNOWN outcome, for the call that resolves it.

    `settles` is when the bind can no longer be carried out, by the clock of the call's `timing`. `then` is the result
    if the pod is still pending at that time; until then, waiting is all there is to do. It is None if the pod could
    not be read, and the bind resumes as soon as possible.
    """

    settles: float
    then: BindResult | None = None


@dataclass(frozen=True, slots=True)
class BindPolicy:
    """The time limits of a bind in seconds. `deadline` counts from the first request, after the wait for the budget.

    `settles` is how long a bind without response may still be carried out. kube-apiserver aborts a request after its
    `--request-timeout`, by default a minute.
    """

    request_timeout: float = 10.0
    deadline: float = 15.0
    settles: float = 60.0
    backoff: Backoff = field(default_factory=lambda: Backoff(initial=0.1, cap=5.0))


DEFAULT_POLICY = BindPolicy()


class _BindPodMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _BindPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    scheduling_gates: list[msgspec.Raw] | None = None


class _BindPod(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: _BindPodMeta = _BindPodMeta()
    spec: _BindPodSpec = _BindPodSpec()


_decode_pod = msgspec.json.Decoder(_BindPod).decode
_encode = msgspec.json.Encoder().encode


def binding(namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None) -> bytes:
    """Return the `v1.Binding`. Its UID is a precondition: the server rejects it (409) if the name has another pod.

    The server writes the annotations to the pod together with its node (`assignPod` in kube-apiserver).
    """
    metadata: dict[str, object] = {"namespace": namespace, "name": name, "uid": uid}
    if annotations:
        metadata["annotations"] = annotations
    return _encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )


class Binds:
    """Sends binds within one budget. No method raises for errors of network or server."""

    def __init__(
        self,
        transport: Transport,
        *,
        budget: Budget = UNLIMITED,
        policy: BindPolicy = DEFAULT_POLICY,
        timing: Timing = REAL,
        allowed: Callable[[str], bool] | None,
        annotations: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Create the sender of binds.

        `allowed` returns whether a bind to a node may be sent now, and is called before each POST; None allows all.
        `annotations` has the annotations that a pod gets with its bind, by UID.
        """
        self._transport = transport
        self._start = start_of(transport)
        self.budget = budget
        self._policy = policy
        self._timing = timing
        self._allowed = allowed
        self._annotations = annotations
        self._driver = Driver(
            transport=transport,
            budget=budget,
            timing=timing,
            backoff=policy.backoff,
            request_timeout=policy.request_timeout,
            deadline=policy.deadline,
        )

    def send_bind(self, pod: PodIdentifier, node: str, ended: Callable[[BindResult | AlreadySent], None]) -> bool:
        """Send the bind immediately and without a task, if possible and allowed; otherwise return false.

        If false is returned, nothing was sent, and `bind` has to be used. `ended` is called once, with the result of
        a successful bind, or with what `bind` needs to resume.
        """
        if not self.budget.is_unlimited or (self._allowed is not None and not self._allowed(node)):
            return False
        began = self._timing.clock()
        post = _post(pod, node, self._annotations.get(pod.uid))

        def answered(answer: Response | TransportError) -> None:
            failure = read(answer, post.asked)
            ended(BindResult(BindOutcome.BOUND, node) if failure is None else AlreadySent(began, failure))

        return self._start(
            post.method, post.path, body=post.body, timeout=self._policy.request_timeout, answered=answered
        )

    async def bind(
        self,
        pod: PodIdentifier,
        node: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        """Bind the pod; return when the outcome is known or the policy's deadline has passed.

        `already_sent` is a bind by `send_bind` that is resumed. `unknown` is the open question of an earlier call for
        this pod and node; the pod is then read before anything is sent, and the outcome covers that call, too. If
        `allowed` denies a bind, the call ends as UNAVAILABLE, or as UNKNOWN if an earlier bind is open. After
        cancellation the caller must treat the pod as after UNKNOWN.
        """
        post = _post(pod, node, self._annotations.get(pod.uid))
        clock = self._timing.clock
        attempt = _BindCall(post, _get(pod), uid=pod.uid, node=node, unknown=unknown, policy=self._policy, clock=clock)

        def refuse(send: Send) -> Failure | None:
            if send is post and self._allowed is not None and not self._allowed(node):
                return _NOT_ALLOWED
            return None

        return await self._driver.run(attempt.run(), refuse=refuse, already_sent=already_sent)

    async def is_pending(self, pod: PodIdentifier) -> bool | None:
        """Return whether the API server has the pod without a node.

        None if the server does not respond or reports the pod as missing, which the watch will show. One request,
        outside the budget.
        """
        reply = await send_once(self._transport, _get(pod), timeout=self._policy.request_timeout)
        found = None if reply.response is None else _pod_in(reply.response)
        if found is None or found.metadata.uid != pod.uid:
            return None
        return not found.spec.node_name


def _post(pod: PodIdentifier, node: str, annotations: Mapping[str, str] | None) -> Send:
    body = binding(pod.namespace, pod.name, pod.uid, node, annotations)
    asked = RequestInfo(Verb.BIND, "pods", pod.name, pod.uid)
    return Send("POST", f"{pod_path(pod)}/binding", asked, body)


def _get(pod: PodIdentifier) -> Send:
    return Send("GET", pod_path(pod), RequestInfo(Verb.GET, "pods", pod.name, pod.uid))


def _pod_in(response: Response) -> _BindPod | None:
    try:
        pod = _decode_pod(response.body)
    except UNREADABLE:
        return None
    return pod if pod.kind == "Pod" and pod.metadata.uid else None


#: Failures after which the pod is read. A 404 that is not about the pod may be about its namespace.
_OUTCOME_UNKNOWN = frozenset({FailureClass.UNKNOWN, FailureClass.CONFLICT, FailureClass.NOT_FOUND})


_NOT_ALLOWED = Failure(FailureClass.TRANSIENT, message="the node may no longer be used")


def _may_go_on(failure: Failure) -> bool:
    """Return whether the server may still carry out a request after this failure.

    After a response of its own it may not: the request has ended, and a later GET, a quorum read of etcd, shows the
    result. A 504 is different: the server stopped waiting for an operation that continues.
    """
    unanswered = failure.source is not ResponseOrigin.API_SERVER or not failure.reason or failure.status == 504
    return failure.kind is FailureClass.UNKNOWN and unanswered


@dataclass(slots=True)
class _BindCall:
    """One call of `bind`.

    Invariants: a POST of unknown outcome is followed by a GET before anything else; no result means "not bound"
    before all POSTs were answered or `settles` has passed.
    """

    post: Send
    get: Send
    uid: str
    node: str
    unknown: UnknownOutcome | None
    policy: BindPolicy
    clock: Clock
    posts: int = 0
    failure: Failure | None = None
    settles: float = float("-inf")

    def run(self) -> Operation[BindResult]:
        if self.unknown is not None:
            self.settles = self.unknown.settles
            state = yield from self._ask()
            if state is not None:
                return state
            if self.unknown.then is not None:
                return self._if_settled(self.unknown.then)
        while True:
            failure = (yield from ask(self.post)).failure
            self.posts += failure is not _NOT_ALLOWED
            if failure is None:
                return self._result(BindOutcome.BOUND, node=self.node)
            self.failure = failure
            if failure is _NOT_ALLOWED:
                return self._if_settled(self._result(BindOutcome.UNAVAILABLE))
            if _may_go_on(failure):
                self.settles = self.clock() + self.policy.settles
            if failure.kind in _OUTCOME_UNKNOWN or failure.status == 404:
                state = yield from self._ask()
                if state is not None:
                    return state
            elif failure.kind is not FailureClass.TRANSIENT:
                return self._if_settled(self._result(BindOutcome.REFUSED))
            if not (yield from pause(failure)):
                return self._if_settled(self._result(BindOutcome.UNAVAILABLE))

    def _ask(self) -> Operation[BindResult | None]:
        """GET the pod until there is a response. None means that it is pending and can be bound: try again.

        A bind that the server is still processing during the GET could be carried out after it. It can only bind the
        pod to the same node, so a repeated POST gets a conflict and the pod is read again; but giving up has to wait
        for it.
        """
        while True:
            failure, response = yield from ask(self.get)
            if response is not None:
                pod = _pod_in(response)
                if pod is not None:
                    return self._judge(pod)
                failure = from_middlebox(response)
            assert failure is not None, "neither an answer nor a failure"
            self.failure = failure
            if failure.kind is FailureClass.NOT_FOUND:
                return self._result(BindOutcome.GONE, confirmed=True)
            if not failure.retryable:
                # Without permission to read pods, only the watch shows the state.
                return self._unknown(self._result(BindOutcome.UNAVAILABLE))
            if not (yield from pause(failure)):
                return self._unknown(self.unknown.then if self.unknown else None)

    def _judge(self, pod: _BindPod) -> BindResult | None:
        if pod.metadata.uid != self.uid:
            return self._result(BindOutcome.RECREATED, confirmed=True)
        if pod.spec.node_name:
            ours = pod.spec.node_name == self.node
            outcome = BindOutcome.BOUND if ours else BindOutcome.BOUND_ELSEWHERE
            return self._result(outcome, node=pod.spec.node_name, confirmed=True)
        if pod.metadata.deletion_timestamp:
            return self._result(BindOutcome.DELETING, confirmed=True)
        if pod.spec.scheduling_gates:
            return self._if_settled(self._result(BindOutcome.GATED, confirmed=True))
        return None

    def _if_settled(self, result: BindResult) -> BindResult:
        """Return `result`, which frees the capacity, unless a bind that was sent may still be carried out."""
        return result if self.clock() >= self.settles else self._unknown(result)

    def _unknown(self, then: BindResult | None) -> BindResult:
        unknown = UnknownOutcome(self.settles, then)
        return BindResult(BindOutcome.UNKNOWN, None, self.posts, self.failure, unknown=unknown)

    def _result(self, outcome: BindOutcome, *, node: str | None = None, confirmed: bool = False) -> BindResult:
        return BindResult(outcome, node, self.posts, self.failure, confirmed)
