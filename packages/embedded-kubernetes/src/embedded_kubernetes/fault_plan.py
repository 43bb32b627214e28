"""The schema of `cluster --faults FILE`: a seed, and rules that select requests and inject one fault each.

A plan consists of values only; `faults.Injector` interprets it, independent of the transport. The structs are the
only schema. An error is one line with the file, the line, the key and the allowed values. docs/faults.md explains
every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from msgspec import Meta

from apimachinery.codec import decode
from apimachinery.document import Document
from apimachinery.errors import ConfigurationError, Invalid, Path, show
from apimachinery.values import Duration, PositiveInt, Section

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
#: None means forever.
Lasting = Annotated[float | None, Meta(extra={"duration": True})]
Count = Annotated[int, Meta(ge=0)]

_READS = frozenset({"list", "watch"})
#: Verbs whose responses have a finite body.
_WHOLE = frozenset({"get", "list", "create", "update", "patch", "delete", "deletecollection"})


class Match(Section, frozen=True, kw_only=True):
    """Selects requests; all given conditions must hold. Texts are globs, in which `*` also matches `/`."""

    verbs: tuple[Verb, ...] | None = None
    methods: tuple[Method, ...] | None = None
    path: str | None = None
    #: The encoded query without its `?`.
    query: str | None = None
    #: `pods`, `pods/binding`, `leases.coordination.k8s.io`. As in roles, a resource does not include its
    #: subresources.
    resource: str | None = None
    namespace: str | None = None
    name: str | None = None


class Error(Section, frozen=True, kw_only=True):
    """Responds with this error; with `commit`, the request is carried out nevertheless."""

    status: Annotated[int, Meta(ge=400, le=599)]
    reason: str | None = None
    message: str | None = None
    #: Whole seconds, because a Status has no finer value.
    retry_after: Count | None = None
    commit: bool = False


class Conflict(Section, frozen=True, kw_only=True):
    """Responds with the 409 for this cause, in kube-apiserver's wording."""

    of: Literal["assigned", "deleting", "exists", "gated", "modified", "uid"]


class Middlebox(Section, frozen=True, kw_only=True):
    """Responds as a proxy or load balancer would; with `commit`, the request is carried out nevertheless."""

    says: Literal[
        "badGateway",
        "empty",
        "emptyObject",
        "forbidden",
        "gatewayTimeout",
        "loginPage",
        "notFound",
        "redirect",
        "serviceUnavailable",
        "tooManyRequests",
        "unauthorized",
    ]
    commit: bool = False


class CutBody(Section, frozen=True, kw_only=True):
    """Carries out the request and truncates the response's body, with a matching Content-Length."""

    #: The number of bytes to send; half by default.
    bytes: Count | None = None


class Delay(Section, frozen=True, kw_only=True):
    """Delays the request before it is carried out, or its response."""

    before: Duration = 0.0
    after: Duration = 0.0


class Drop(Section, frozen=True, kw_only=True):
    """Resets the connection without carrying out the request."""

    after: Duration = 0.0


class Lose(Section, frozen=True, kw_only=True):
    """Carries out the request and resets the connection instead of responding."""

    after: Duration = 0.0


class Hang(Section, frozen=True, kw_only=True):
    """Sends no response and resets the connection after `lasts`; with `commit`, the request is carried out."""

    commit: bool = False
    lasts: Lasting = None


class Stale(Section, frozen=True, kw_only=True):
    """Makes a list, or the start of a watch, `versions` resource versions old."""

    versions: PositiveInt


class Cut(Section, frozen=True, kw_only=True):
    """Base class: a position in a watch, after a number of events or bytes, plus up to `spread`."""

    events: Count | None = None
    bytes: Count | None = None
    spread: Count = 0


class Close(Cut, frozen=True, kw_only=True):
    """Ends the watch regularly."""


class Reset(Cut, frozen=True, kw_only=True):
    """Resets the watch's connection."""


class Stall(Cut, frozen=True, kw_only=True):
    """Sends nothing more for this duration, but keeps the connection open."""

    lasts: Lasting = None


class After(Section, frozen=True, kw_only=True):
    """Base class: a position in a watch, after a number of events, plus up to `spread`."""

    events: Count
    spread: Count = 0


class Expire(After, frozen=True, kw_only=True):
    """Sends an ERROR event with 410 and ends the watch."""


class Truncate(After, frozen=True, kw_only=True):
    """Truncates the next line to its first half; the watch continues."""


class Garble(After, frozen=True, kw_only=True):
    """Makes the next line invalid JSON; the watch continues."""


class UnknownType(After, frozen=True, kw_only=True):
    """Gives the next event an undefined type; the watch continues."""


class UnknownFields(Section, frozen=True, kw_only=True):
    """Adds unknown fields to every event, one of them of this length."""

    bytes: Count = 0


class LoseDelete(Section, frozen=True, kw_only=True):
    """Suppresses events from a deletion on, ends the watch after `deletions`, and answers its next request with 410."""

    deletions: PositiveInt = 1


class Duplicate(Section, frozen=True, kw_only=True):
    """Sends every `every`th event twice."""

    every: PositiveInt = 1


class Replay(Section, frozen=True, kw_only=True):
    """Repeats the `last` events after every `events` events."""

    events: PositiveInt
    last: PositiveInt


class Hold(Section, frozen=True, kw_only=True):
    """Delays the watch's events by this duration."""

    back: Duration = 0.0


class Fault(Section, frozen=True, kw_only=True):
    """A fault; exactly one field is set."""

    error: Error | None = None
    conflict: Conflict | None = None
    middlebox: Middlebox | None = None
    cut_body: CutBody | None = None
    delay: Delay | None = None
    drop: Drop | None = None
    lose: Lose | None = None
    hang: Hang | None = None
    stale: Stale | None = None
    close: Close | None = None
    reset: Reset | None = None
    stall: Stall | None = None
    expire: Expire | None = None
    lose_delete: LoseDelete | None = None
    duplicate: Duplicate | None = None
    replay: Replay | None = None
    truncate: Truncate | None = None
    garble: Garble | None = None
    unknown_type: UnknownType | None = None
    unknown_fields: UnknownFields | None = None
    hold: Hold | None = None

    @property
    def kind(self) -> str:
        """The fault's name in a file."""
        return self.given()[0]

    @property
    def section(self) -> Section:
        given: Section = getattr(self, _FIELDS[self.kind])
        return given

    def given(self) -> list[str]:
        return [name for name, field in _FIELDS.items() if getattr(self, field) is not None]


_FIELDS = dict(zip(Fault.__struct_encode_fields__, Fault.__struct_fields__, strict=True))
#: The names of all faults in files.
KINDS = tuple(_FIELDS)
#: Faults of open watches.
WATCH_KINDS = KINDS[KINDS.index("close") :]


class FaultRule(Section, frozen=True, kw_only=True):
    """One fault for the matching requests, which are counted from 1.

    The first `after` of them pass. Of the next `first` (default: all), each one is affected with `probability`, or
    every `every`th, or, without both, each. The total is limited by `count`.
    """

    fault: Fault = Fault()
    match: Match = Match()
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    every: PositiveInt | None = None
    after: Count = 0
    first: PositiveInt | None = None
    count: PositiveInt | None = None


class Plan(Section, frozen=True, kw_only=True):
    """A plan. The first rule that affects a request decides; later rules do not count the request."""

    rules: tuple[FaultRule, ...] = ()
    seed: int = 0


#: A plan, its file, its text or its content.
Faults = Plan | FilePath | str | Mapping[str, Any]


def plan_from(faults: Faults) -> Plan:
    """Return the plan. Raises ConfigurationError with one complete line."""
    match faults:
        case Plan():
            return faults
        case FilePath():
            return read_plan(faults)
        case str():
            return plan_of(faults)
        case Mapping():
            return plan_of(json.dumps(dict(faults)))
    raise ConfigurationError(
        f"faults: expected a plan, its text or a file (pathlib.Path), found {type(faults).__name__}"
    )


def read_plan(file: FilePath) -> Plan:
    """Read the plan in a YAML or JSON file. Raises ConfigurationError with one complete line."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: is not UTF-8 text: {error.reason}") from None
    return plan_of(text, source=str(file))


def plan_of(text: str, *, source: str = "faults") -> Plan:
    """Parse the text of a plan. Raises ConfigurationError with one complete line."""
    document = Document(text, source=source)
    try:
        plan = decode(document.data, Plan)
        _check(plan)
    except Invalid as error:
        at = show(error.path)
        where = document.where(error.path)
        raise ConfigurationError(f"{where}: {at}: {error.message}" if at else f"{where}: {error.message}") from None
    return plan


def _check(plan: Plan) -> None:
    """Check what the types cannot express. Raises `Invalid`."""
    if not plan.rules:
        raise Invalid(("rules",), "is empty; allowed: one rule or more")
    for index, rule in enumerate(plan.rules):
        at: Path = ("rules", index)
        _check_fault(rule.fault, (*at, "fault"))
        _check_match(rule, (*at, "match"))
        if rule.probability is not None and rule.every is not None:
            raise Invalid((*at, "every"), "excludes probability; allowed: one of the two")


def _check_fault(fault: Fault, at: Path) -> None:
    given = fault.given()
    if len(given) != 1:
        found = f"found {', '.join(given)}" if given else "is empty"
        raise Invalid(at, f"{found}; allowed: exactly one of {', '.join(KINDS)}")
    section, at = fault.section, (*at, fault.kind)
    if isinstance(section, Delay) and not section.before and not section.after:
        raise Invalid(at, "delays nothing; allowed: before, after or both, above 0s")
    if isinstance(section, Hold) and not section.back:
        raise Invalid((*at, "back"), "holds nothing back; allowed: a duration above 0s")
    if isinstance(section, Cut) and (section.events is None) == (section.bytes is None):
        raise Invalid(at, "has no position; allowed: exactly one of events and bytes")


def _check_match(rule: FaultRule, at: Path) -> None:
    match, kind = rule.match, rule.fault.kind
    for key in ("verbs", "methods"):
        if getattr(match, key) == ():
            raise Invalid((*at, key), "is empty, so that nothing would match; leave it out for all")
    possible = {"watch"} if kind in WATCH_KINDS else {"stale": _READS, "cutBody": _WHOLE}.get(kind)
    if possible is None:
        return
    if match.verbs is not None and not possible & set(match.verbs):
        allowed = " or ".join(sorted(possible))
        raise Invalid((*at, "verbs"), f"has no verb that {kind} applies to; allowed: {allowed} among them")
    if kind != "cutBody" and match.methods is not None and "GET" not in match.methods:
        raise Invalid((*at, "methods"), f"has no method that {kind} applies to; allowed: GET among them")
