"""Decides which requests get which faults of a plan, and counts them.

The decision only depends on the count of requests: randomness is injected, and the same plan, seed and order of
requests give the same faults. Nothing here waits, sends or closes; the transport does so as a `Disturbance` directs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from typing import Final, NamedTuple
from urllib.parse import unquote

from apimachinery.plural import counted

from . import errors, fault_plan, nesting, protobuf
from .auth.attributes import VERBS, NoRequest, by_path, of_path
from .errors import ApiError
from .fault_plan import Fault, FaultRule, Match, Plan
from .fault_streams import (
    TOO_OLD,
    Cutting,
    Distortion,
    Editing,
    EditingAll,
    End,
    Holding,
    LosingDeletes,
    Pause,
    Repeating,
    Step,
    Struck,
    expired,
    garbled,
    of_unknown_type,
    truncated,
    with_unknown_fields,
)
from .requests import Disturbance, Request, Response

_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"


def _page(title: str) -> bytes:
    return f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\r\n".encode()


#: The responses of the fault `middlebox`.
MIDDLEBOX: Final = {
    "badGateway": Response(502, _page("502 Bad Gateway"), _HTML),
    "empty": Response(200, b"", _TEXT),
    "emptyObject": Response(200, b"{}"),
    "forbidden": Response(403, _page("403 Forbidden"), _HTML),
    "gatewayTimeout": Response(504, _page("504 Gateway Time-out"), _HTML),
    "loginPage": Response(200, _page("Sign in"), _HTML),
    "notFound": Response(404, b"default backend - 404", _TEXT),
    "redirect": Response(302, _page("302 Found"), _HTML, (("Location", "https://login.example/"),)),
    "serviceUnavailable": Response(503, _page("503 Service Unavailable"), _HTML),
    "tooManyRequests": Response(429, _page("429 Too Many Requests"), _HTML, (("Retry-After", "1"),)),
    "unauthorized": Response(401, _page("401 Authorization Required"), _HTML),
}


def cut_body(answer: Response, *, size: int | None) -> Response:
    """Return the response with the first `size` bytes of its body, half if None, and a matching length."""
    kept = len(answer.body) // 2 if size is None else size
    return Response(answer.status, answer.body[:kept], answer.content_type, answer.headers)


#: Returns random numbers in [0, 1).
Chance = Callable[[], float]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(slots=True)
class _Turns:
    """The request count of one rule. It owns the rule's random numbers."""

    rule: FaultRule
    chance: Chance
    matched: int = 0
    fired: int = 0

    def strikes(self) -> bool:
        """Return whether the next matching request is affected."""
        rule = self.rule
        self.matched += 1
        turn = self.matched - rule.after
        if turn < 1 or (rule.first is not None and turn > rule.first):
            return False
        if rule.count is not None and self.fired >= rule.count:
            return False
        if rule.every is not None and turn % rule.every:
            return False
        if rule.probability is not None and self.chance() >= rule.probability:
            return False
        self.fired += 1
        return True

    def up_to(self, spread: int) -> int:
        return int(self.chance() * (spread + 1)) if spread else 0


class Injector:
    """Implements `Disturb` for a plan. `fired` counts fired faults by kind."""

    def __init__(self, plan: Plan, *, chance: Callable[[int], Chance] | None = None) -> None:
        """Create an injector.

        `chance` returns a separate random source for each rule, so that rules are independent.
        """
        draw = chance or (lambda index: Random(f"{plan.seed}/{index}").random)
        self._turns = [_Turns(rule, draw(index)) for index, rule in enumerate(plan.rules)]
        self.fired: dict[str, int] = dict.fromkeys((rule.fault.kind for rule in plan.rules), 0)
        #: Watches whose next request gets 410, because a deletion was lost.
        self._expired: set[tuple[str, ...]] = set()

    def __call__(self, request: Request) -> Disturbance | None:
        target = target_of(request)
        watching = target.verb == "watch"
        if watching and self._expired and (key := _same_watch(request)) in self._expired:
            self._expired.discard(key)
            return Disturbance(error=errors.gone(TOO_OLD))
        for turns in self._turns:
            fault = turns.rule.fault
            kind = fault.kind
            if _strikes_verb(kind, target.verb) and _matches(turns.rule.match, request, target) and turns.strikes():
                if kind in fault_plan.WATCH_KINDS:
                    return Disturbance(distortion=self._distortion(fault, request, turns))
                self._count(kind)
                return _disturbance(fault, target)
        return None

    def _count(self, kind: str) -> None:
        self.fired[kind] += 1

    def _distortion(self, fault: Fault, request: Request, turns: _Turns) -> Distortion:
        struck = partial(self._count, fault.kind)
        if fault.lose_delete is None:
            return _distortion(fault, struck, turns.up_to)

        def lost() -> None:
            struck()
            self._expired.add(_same_watch(request))

        return LosingDeletes(lost, deletions=fault.lose_delete.deletions)

    def report(self) -> list[str]:
        """Return one line for each kind of fault in the plan."""
        return [f"fault {kind}: fired {counted(count, 'time')}" for kind, count in self.fired.items()]


class Target(NamedTuple):
    """The target of a request. `resource` is empty for a non-resource path, such as /healthz."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def resources(self) -> tuple[str, ...]:
        """Return the names that rules may use for the resource."""
        if not self.resource:
            return ()
        below = f"/{self.subresource}" if self.subresource else ""
        plain = f"{self.resource}{below}"
        return (plain, f"{self.resource}.{self.group}{below}") if self.group else (plain,)


def target_of(request: Request) -> Target:
    """Return the target of a request as RBAC sees it: a POST to a subresource is a create. A namespace is in none.

    It depends on the request alone, not on the registry, so that it works for kinds that are not served.
    """
    method = request.method
    try:
        found = by_path(method, request.path)
    except NoRequest:
        found = of_path("", request.path)
    verb = VERBS.get(method, method.lower())
    if found.of_resource and verb == "get":
        watching = found.verb == "watch" or request.flag("watch")
        verb = "watch" if watching else "get" if found.name else "list"
    elif found.of_resource and verb == "delete" and not found.name:
        verb = "deletecollection"
    namespace = "" if found.resource == "namespaces" else found.namespace
    return Target(verb, found.group, found.resource, found.subresource, namespace, found.name)


def _matches(match: Match, request: Request, target: Target) -> bool:
    """Return whether a rule with this `match` applies to the request."""
    if match.verbs is not None and target.verb not in match.verbs:
        return False
    if match.methods is not None and request.method not in match.methods:
        return False
    if match.path is not None and not fnmatchcase(unquote(request.path), match.path):
        return False
    if match.query is not None and not fnmatchcase(request.query, match.query):
        return False
    if match.resource is not None and not any(fnmatchcase(name, match.resource) for name in target.resources()):
        return False
    if match.namespace is not None and not fnmatchcase(target.namespace, match.namespace):
        return False
    return match.name is None or fnmatchcase(target.name or _name_in(request), match.name)


def _name_in(request: Request) -> str:
    """Return the name of the object that a request creates."""
    if request.method != "POST":
        return ""
    try:
        is_json = request.content_type != protobuf.MEDIA_TYPE
        body = nesting.loads(request.body) if is_json else protobuf.decode(request.body)
        return str(body["metadata"]["name"])
    except (ApiError, ValueError, KeyError, TypeError):
        return ""


def _strikes_verb(kind: str, verb: str) -> bool:
    if kind in fault_plan.WATCH_KINDS:
        return verb == "watch"
    if kind == "cutBody":
        return verb != "watch"
    return kind != "stale" or verb in ("list", "watch")


def _same_watch(request: Request) -> tuple[str, ...]:
    given = request.parameters
    return request.path, given.get("labelSelector", ""), given.get("fieldSelector", "")


def _disturbance(fault: Fault, target: Target) -> Disturbance:
    """Return the effect of a fault on a request."""
    match fault.section:
        case fault_plan.Error() as error:
            return Disturbance(error=_refusal(error), commits=error.commit)
        case fault_plan.Conflict(of=of):
            return Disturbance(error=_conflict(of, target))
        case fault_plan.Middlebox(says=says, commit=commit):
            return Disturbance(answer=MIDDLEBOX[says], commits=commit)
        case fault_plan.CutBody(bytes=size):
            return Disturbance(edited=partial(cut_body, size=size))
        case fault_plan.Delay(before=before, after=after):
            return Disturbance(delay=before, late=after)
        case fault_plan.Drop(after=after):
            return Disturbance(delay=after, drop=True)
        case fault_plan.Lose(after=after):
            return Disturbance(late=after, lose=True)
        case fault_plan.Hang(commit=commit, lasts=lasts):
            seconds = math.inf if lasts is None else lasts
            return Disturbance(late=seconds, lose=True) if commit else Disturbance(delay=seconds, drop=True)
        case fault_plan.Stale(versions=versions):
            return Disturbance(behind=versions)
    raise AssertionError(f"{fault.kind} is no fault of a request")


def _refusal(error: fault_plan.Error) -> ApiError:
    reason = error.reason if error.reason is not None else _REASONS.get(error.status, "")
    details = None if error.retry_after is None else {"retryAfterSeconds": error.retry_after}
    return ApiError(error.status, reason, error.message or "injected by a fault", details)


def _conflict(of: str, target: Target) -> ApiError:
    """Return the 409 for a cause, in the wording of `binding.assign` and of the registry."""
    name, resource = target.name, target.resource or "pods"
    if of == "exists":
        return errors.already_exists(resource, target.group, name)
    if of == "modified":
        return errors.stale(resource, target.group, name)
    if of == "uid":
        why = f"Precondition failed: UID in precondition: injected, UID in object meta: of another {name}"
        return errors.conflict(resource, target.group, name, why)
    why = {
        "assigned": f'pod {name} is already assigned to node "injected"',
        "deleting": f"pod {name} is being deleted, cannot be assigned to a host",
        "gated": f"pod {name} has non-empty .spec.schedulingGates",
    }[of]
    return errors.conflict("pods/binding", "", name, why)


def _distortion(fault: Fault, struck: Struck, up_to: Callable[[int], int]) -> Distortion:
    """Return the effect of a fault on an open watch. `up_to` draws a number."""

    def cut(at: fault_plan.Cut, step: Step) -> Distortion:
        more = up_to(at.spread)
        if at.events is not None:
            return Cutting([step], struck, lines=at.events + more)
        assert at.bytes is not None
        return Cutting([step], struck, size=at.bytes + more)

    def edit(at: fault_plan.After, edited: Callable[[bytes], bytes]) -> Distortion:
        return Editing(edited, struck, lines=at.events + up_to(at.spread))

    match fault.section:
        case fault_plan.Close() as at:
            return cut(at, End.CLOSE)
        case fault_plan.Reset() as at:
            return cut(at, End.RESET)
        case fault_plan.Stall() as at:
            return cut(at, Pause(math.inf if at.lasts is None else at.lasts))
        case fault_plan.Expire() as after:
            return Cutting([expired(), End.CLOSE], struck, lines=after.events + up_to(after.spread))
        case fault_plan.Truncate() as after:
            return edit(after, truncated)
        case fault_plan.Garble() as after:
            return edit(after, garbled)
        case fault_plan.UnknownType() as after:
            return edit(after, of_unknown_type)
        case fault_plan.UnknownFields(bytes=size):
            return EditingAll(partial(with_unknown_fields, size=size), struck)
        case fault_plan.Duplicate(every=every):
            return Repeating(struck, every=every, last=1)
        case fault_plan.Replay(events=events, last=last):
            return Repeating(struck, every=events, last=last)
        case fault_plan.Hold(back=back):
            return Holding(struck, seconds=back)
    raise AssertionError(f"{fault.kind} is no fault of a watch")
