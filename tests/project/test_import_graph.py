"""Modules import one another in one direction only, for annotations too, except in the cycles that are listed here."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from tests.project.import_graph import cycles, described, import_graph

#: The cycles that are not cut so far. An entry goes when its cycle is cut; none is added, and none grows.
ALLOWED: Final[tuple[frozenset[str], ...]] = ()


def test_modules_import_in_one_direction() -> None:
    graph = import_graph()
    new = [each for each in cycles(graph) if not any(each <= known for known in ALLOWED)]
    assert new == [], "\n\n".join(described(each, graph) for each in new)


def test_the_list_of_cycles_falls() -> None:
    found = cycles(import_graph())
    assert sorted(map(sorted, ALLOWED)) == sorted(map(sorted, found)), "shorten ALLOWED"


# ---- the rule


def graph_of(tmp_path: Path, **modules: str) -> list[list[str]]:
    """Return the cycles of a package `made` with these modules."""
    (tmp_path / "made" / "inner").mkdir(parents=True)
    for name, source in {"__init__": "", "inner/__init__": "", **modules}.items():
        (tmp_path / "made" / f"{name}.py").write_text(textwrap.dedent(source))
    return sorted(map(sorted, cycles(import_graph([tmp_path]))))


def test_a_cycle_is_found_through_annotations_functions_and_relative_imports(tmp_path: Path) -> None:
    found = graph_of(
        tmp_path,
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B",
        b="def late():\n    import made.c",
        c="from made.inner import deep",
        **{"inner/deep": "from .. import a", "inner/leaf": "from ..c import C\nimport os"},
    )
    assert found == [["made.a", "made.b", "made.c", "made.inner.deep"]]


def test_modules_that_share_an_import_are_no_cycle(tmp_path: Path) -> None:
    assert graph_of(tmp_path, a="from . import b\nfrom . import c", b="from . import c", c="") == []
