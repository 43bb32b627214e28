"""What decides is given what it may be given: for every optional input of its functions and values there is somebody in
the product who passes it. One that only tests pass is a rule that never applies in what ships."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.places import ROOT

SOURCE = ROOT / "src" / "agent_scheduler"
ROOMS = ("engine/session", "engine/framework/h", "engine/framework/pl", "engine/decide", "engine/preemption")
ROOMS += ("engine/gangs", "engine/plugins", "engine/queueing/queue", "cluster", "batch", "fastpath")
#: Whose it is, and the input that nobody names; and why that is right.
MEANT = {
    (
        "SessionConf",
        "features",
    ): "Volcano's gates are for its recorded sessions; here queues let pods past theirs",
    ("Hooks", "cleanup_reservations"): "for plugins of others",
    ("SchedulingQueue", "max_inflight_events"): "a bound on memory, which tests make small",
    ("add_unschedulable", "pending_plugins"): "of who waits for a plugin of others (Permit)",
    ("FastPathSettings", "watch_times"): "times that tests make short",
    ("FastPathSettings", "bind_policy"): "times that tests make short",
    **{("NodeResourcesFit", name): "passed by place as `Seeing` is asked" for name in ("ledger", "devices")},
    ("DynamicResources", "devices"): "passed by place as `Seeing` is asked",
    **{(name, "args"): "the registry passes it by place" for name in ("DynamicResources", "VolumeBinding")},
    ("_Allocation", "resources"): "the registry passes it by place",
    ("_decide", "cls"): "gangs pass it by place",
    **{("Tried", name): "passed by place" for name in ("waited", "reservations")},
    **{(name, each): "a protocol" for name in ("_nothing", "_move_all") for each in ("old", "new")},
    ("__call__", "admission"): "a protocol",
}


def _called(call: ast.Call) -> Iterator[str]:
    """By its last name; `partial` passes its arguments on."""
    for each in (call.func, *call.args[:1]):
        if isinstance(each, ast.Name | ast.Attribute):
            yield each.id if isinstance(each, ast.Name) else each.attr


def _inputs(tree: ast.Module) -> Iterator[tuple[str, str, int | None]]:
    """Those with a default: whose it is, its name, and its place if it has one."""
    for found in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        fields = [each for each in found.body if isinstance(each, ast.AnnAssign)]
        heads = " ".join(map(ast.unparse, (*found.decorator_list, *found.bases, *found.keywords)))
        if "frozen=True" in heads or "NamedTuple" in heads:
            yield from (
                (found.name, ast.unparse(each.target), at) for at, each in enumerate(fields) if each.value
            )
        for each in found.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                each.name = found.name
    for function in (
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ):
        of = function.args
        for argument, default in zip(of.kwonlyargs, of.kw_defaults, strict=True):
            if default is not None:
                yield function.name, argument.arg, None
        first, own = len(of.args) - len(of.defaults), bool(of.args) and of.args[0].arg == "self"
        yield from ((function.name, each.arg, at) for at, each in enumerate(of.args[first:], first - own))


def test_every_optional_input_of_a_decision_is_passed_by_the_product() -> None:
    trees = {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }
    named: dict[str, set[str | None]] = {"replace": set()}
    places: dict[str, int] = {}
    for call in (each for tree in trees.values() for each in ast.walk(tree) if isinstance(each, ast.Call)):
        for name in _called(call):
            named.setdefault(name, set()).update(each.arg for each in call.keywords)
            places[name] = max(places.get(name, 0), len(call.args))
    unfed = {
        (whose, name)
        for path, tree in trees.items()
        if path.startswith(ROOMS)
        for whose, name, place in _inputs(tree)
        if not {name, None} & named.get(whose, set()) | {name} & named["replace"]
        and (place is None or place >= places.get(whose, 0))
    }
    assert unfed == MEANT.keys()
