"""What `cluster --faults FILE` may say: a seed and rules, each with what it strikes, how often, and one fault.

A plan is values only: `faults.Injector` decides by them, whatever carries the requests. The structs are the only
schema. What is wrong with a file is said in one line: the file, the line, the key, what is allowed. docs/faults.md
explains every key.
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
#: None: for ever.
Lasting = Annotated[float | None, Meta(extra={"duration": True})]
Count = Annotated[int, Meta(ge=0)]

_READS = frozenset({"list", "watch"})
#: Verbs whose answers have a body that ends.
_WHOLE = frozenset({"get", "list", "create", "update", "patch", "delete", "deletecollection"})


class Match(Section, frozen=True, kw_only=True):
    """Which requests a rule is about: all that is given must hold. Texts are globs, in which `*` matches `/` too."""

    verbs: tuple[Verb, ...] | None = None
    methods: tuple[Method, ...] | None = None
    path: str | None = None
    #: As it is on the wire, without its `?`.
    query: str | None = None
    #: `pods`, `pods/binding`, `leases.coordination.k8s.io`. As in roles, a kind does not include what is below it.
    resource: str | None = None
    namespace: str | None = None
    name: str | None = None


class Error(Section, frozen=True, kw_only=True):
    """The answer is this refusal; with `commit` although the request was carried out."""

    status: Annotated[int, Meta(ge=400, le=599)]
    reason: str | None = None
    message: str | None = None
    #: Whole seconds: a Status holds nothing finer.
    retry_after: Count | None = None
    commit: bool = False


class Conflict(Section, frozen=True, kw_only=True):
    """The answer is the 409 of this cause, in a real server's words."""

    of: Literal["assigned", "deleting", "exists", "gated", "modified", "uid"]


class Middlebox(Section, frozen=True, kw_only=True):
    """A proxy or load balancer answers, not the API server; with `commit` the request was carried out."""

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
    """The request is carried out, and of the answer's body comes the beginning, framed as if it were all."""

    #: How much of it; half, if not given.
    bytes: Count | None = None


class Delay(Section, frozen=True, kw_only=True):
    """The request waits before it is carried out, or its answer after."""

    before: Duration = 0.0
    after: Duration = 0.0


class Drop(Section, frozen=True, kw_only=True):
    """The connection is reset and the request not carried out."""

    after: Duration = 0.0


class Lose(Section, frozen=True, kw_only=True):
    """The request is carried out, and the connection reset instead of an answer."""

    after: Duration = 0.0


class Hang(Section, frozen=True, kw_only=True):
    """No answer comes; `lasts` later the connection is reset. With `commit` the request was carried out."""

    commit: bool = False
    lasts: Lasting = None


class Stale(Section, frozen=True, kw_only=True):
    """A list, or the beginning of a watch, that is so many versions old."""

    versions: PositiveInt


class Cut(Section, frozen=True, kw_only=True):
    """Base: where in a watch something happens, after so many events or bytes, and up to `spread` more."""

    events: Count | None = None
    bytes: Count | None = None
    spread: Count = 0


class Close(Cut, frozen=True, kw_only=True):
    """The watch ends in good order."""


class Reset(Cut, frozen=True, kw_only=True):
    """The watch's connection is reset."""


class Stall(Cut, frozen=True, kw_only=True):
    """Nothing more comes, for so long; the connection stays open."""

    lasts: Lasting = None


class After(Section, frozen=True, kw_only=True):
    """Base: after how many events of a watch, and up to `spread` more."""

    events: Count
    spread: Count = 0


class Expire(After, frozen=True, kw_only=True):
    """An ERROR event says 410, and the watch ends."""


class Truncate(After, frozen=True, kw_only=True):
    """The next line is cut in half; the watch goes on."""


class Garble(After, frozen=True, kw_only=True):
    """The next line is no JSON; the watch goes on."""


class UnknownType(After, frozen=True, kw_only=True):
    """The next event has a type that there is not; the watch goes on."""


class UnknownFields(Section, frozen=True, kw_only=True):
    """Every event has fields that nobody knows, one of them this long."""

    bytes: Count = 0


class LoseDelete(Section, frozen=True, kw_only=True):
    """The watch is silent from a deletion on, ends after so many of them, and the next of its path is answered 410."""

    deletions: PositiveInt = 1


class Duplicate(Section, frozen=True, kw_only=True):
    """Every so manieth event comes twice."""

    every: PositiveInt = 1


class Replay(Section, frozen=True, kw_only=True):
    """After every `events` events the last ones come once more."""

    events: PositiveInt
    last: PositiveInt


class Hold(Section, frozen=True, kw_only=True):
    """What the watch has to tell comes so much later."""

    back: Duration = 0.0


class Fault(Section, frozen=True, kw_only=True):
    """Exactly one of these."""

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
        """Its name, as in a file."""
        return self.given()[0]

    @property
    def section(self) -> Section:
        given: Section = getattr(self, _FIELDS[self.kind])
        return given

    def given(self) -> list[str]:
        return [name for name, field in _FIELDS.items() if getattr(self, field) is not None]


_FIELDS = dict(zip(Fault.__struct_encode_fields__, Fault.__struct_fields__, strict=True))
#: Every kind of fault by its name in a file.
KINDS = tuple(_FIELDS)
#: Those that strike an open watch.
WATCH_KINDS = KINDS[KINDS.index("close") :]


class Rule(Section, frozen=True, kw_only=True):
    """One fault for some requests. Those that match are counted from 1.

    The first `after` of them pass; of the next `first` (of all that follow, if not given) each is struck by
    `probability`, or every `every`th, or, with neither, each; never more than `count` in all.
    """

    fault: Fault = Fault()
    match: Match = Match()
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    every: PositiveInt | None = None
    after: Count = 0
    first: PositiveInt | None = None
    count: PositiveInt | None = None


class Plan(Section, frozen=True, kw_only=True):
    """The whole. The first rule that strikes a request decides; the rules behind it do not see it."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0


#: A plan, or what stands for one: a file, its text, or what it holds.
Faults = Plan | FilePath | str | Mapping[str, Any]


def plan_from(faults: Faults) -> Plan:
    """Raises ConfigurationError with one complete line."""
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
    """The plan in a YAML or JSON file. Raises ConfigurationError with one complete line."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: is not UTF-8 text: {error.reason}") from None
    return plan_of(text, source=str(file))


def plan_of(text: str, *, source: str = "faults") -> Plan:
    """As `read_plan`, of a file's text."""
    document = Document(text, source=source)
    try:
        plan = decode(document.data, Plan)
        _check(plan)
    except Invalid as error:
        at = show(error.path)
        where = document.where(error.path)
        raise ConfigurationError(
            f"{where}: {at}: {error.message}" if at else f"{where}: {error.message}"
        ) from None
    return plan


def _check(plan: Plan) -> None:
    """Raises `Invalid` for what the types alone do not say."""
    if not plan.rules:
        raise Invalid(("rules",), "is empty; allowed: one rule or more")
    for index, rule in enumerate(plan.rules):
        at: Path = ("rules", index)
        _check_fault(rule.fault, (*at, "fault"))
        _check_match(rule, (*at, "match"))
        if rule.probability is not None and rule.every is not None:
            raise Invalid((*at, "every"), "stands beside probability; allowed: one of the two")


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
        raise Invalid(at, "says not where; allowed: events or bytes, one of the two")


def _check_match(rule: Rule, at: Path) -> None:
    match, kind = rule.match, rule.fault.kind
    for key in ("verbs", "methods"):
        if getattr(match, key) == ():
            raise Invalid((*at, key), "is empty, so that nothing would match; leave it out for all")
    possible = {"watch"} if kind in WATCH_KINDS else {"stale": _READS, "cutBody": _WHOLE}.get(kind)
    if possible is None:
        return
    if match.verbs is not None and not possible & set(match.verbs):
        allowed = " or ".join(sorted(possible))
        raise Invalid((*at, "verbs"), f"leaves out all that {kind} strikes; allowed: {allowed} among them")
    if kind != "cutBody" and match.methods is not None and "GET" not in match.methods:
        raise Invalid((*at, "methods"), f"leaves out all that {kind} strikes; allowed: GET among them")
