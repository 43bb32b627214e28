"""The product passes every optional input of functions and values that decide.

An input that only tests pass is a rule that never applies in the shipped product.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.places import ROOT

SOURCE = ROOT / "src" / "agent_scheduler"
ROOMS = ("engine/session", "engine/framework/h", "engine/framework/pl", "engine/decide", "engine/preemption")
ROOMS += ("engine/gangs", "engine/plugins", "engine/queueing/queue", "cluster", "batch", "fastpath")
#: Inputs that are not passed by name, as `whose.name`: Volcano's gates in recorded sessions, inputs for external
#: plugins, times and limits that tests reduce, inputs that another function passes by position, and protocols.
MEANT = """
SessionConf.features Hooks.cleanup_reservations add_unschedulable.pending_plugins
FastPathSettings.watch_times FastPathSettings.bind_policy NodeResourcesFit.ledger NodeResourcesFit.devices
DynamicResources.devices DynamicResources.args VolumeBinding.args _Allocation.resources _decide.cls MemberResult.waited
MemberResult.reservations _nothing.old _nothing.new _move_all.old _move_all.new
"""


def _inputs(tree: ast.Module) -> Iterator[tuple[str, str, float]]:
    """Yield inputs with a default: the owner, the name, and the position."""
    for found in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        heads = " ".join(map(ast.unparse, (*found.decorator_list, *found.bases, *found.keywords)))
        if "frozen=True" in heads or "NamedTuple" in heads or "TypedDict" in heads:
            fields = [each for each in found.body if isinstance(each, ast.AnnAssign)]
            yield from (
                (found.name, ast.unparse(each.target), at)
                for at, each in enumerate(fields)
                if each.value or "total=False" in heads
            )
        for each in found.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                each.name = found.name
    for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)):
        of = function.args
        named = zip(of.kwonlyargs, of.kw_defaults, strict=True)
        yield from ((function.name, each.arg, float("inf")) for each, default in named if default is not None)
        first, own = len(of.args) - len(of.defaults), bool(of.args) and of.args[0].arg == "self"
        yield from ((function.name, each.arg, at) for at, each in enumerate(of.args[first:], first - own))


def test_every_optional_input_of_a_decision_is_passed_by_the_product() -> None:
    trees = {str(path.relative_to(SOURCE)): ast.parse(path.read_bytes()) for path in SOURCE.rglob("*.py")}
    named: dict[str, set[str | None]] = {"replace": set()}
    places: dict[str, int] = {}
    for call in (each for tree in trees.values() for each in ast.walk(tree) if isinstance(each, ast.Call)):
        # `partial` passes its arguments on.
        for name in (ast.unparse(each).rpartition(".")[2] for each in (call.func, *call.args[:1])):
            named.setdefault(name, set()).update(each.arg for each in call.keywords)
            places[name] = max(places.get(name, 0), len(call.args))
    unfed = {
        f"{whose}.{name}"
        for path, tree in trees.items()
        if path.startswith(ROOMS)
        for whose, name, place in _inputs(tree)
        if not {name, None} & named.get(whose, set()) | {name} & named["replace"] and place >= places.get(whose, 0)
    }
    assert unfed == set(MEANT.split())
