"""Every mutant still fits the source as it stands; whether the tests catch it is for `make mutants` to say."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from .__main__ import sampled
from .generated import stages_of
from .mutant import (
    FAULTS,
    SHIPPED,
    Mutant,
    MutantError,
    Tree,
    all_mutants,
    check_difference,
    mutated,
    read,
)
from .scratch import ROOT

NAMES = [path.stem for path in FAULTS.glob("*.mutant")]


@cache
def the_tree() -> Tree:
    return Tree(ROOT)


@cache
def texts_of(name: str) -> dict[str, str]:
    return mutated(read(FAULTS / f"{name}.mutant"), the_tree())


def problem_of(name: str) -> str:
    try:
        mutant = read(FAULTS / f"{name}.mutant")
        assert texts_of(name)
    except MutantError as error:
        return str(error)
    if not mutant.breaks.endswith("."):
        return f"{name}: what it breaks is no sentence"
    if not all(path.startswith("tests/") for path in mutant.caught_by):
        return f"{name}: what catches it is not under tests/"
    if not any((ROOT / path).exists() for path in mutant.caught_by):
        return f"{name}: none of {', '.join(mutant.caught_by)} exists"
    return ""


def test_every_mutant_fits_compiles_and_says_what_it_breaks() -> None:
    assert NAMES
    assert [problem for name in NAMES if (problem := problem_of(name))] == []


def test_each_mutant_has_a_number_of_its_own() -> None:
    """Numbers may be left out: mutants that are made at the same time take theirs from different hundreds."""
    numbers = [name.split("-")[0] for name in NAMES]
    assert [number for number in numbers if number != f"{int(number):02}" or numbers.count(number) > 1] == []


def test_every_package_that_ships_has_mutants() -> None:
    shipped = {
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / SHIPPED[0]).iterdir()
        if (each / "__init__.py").exists()
    }
    paths = {path for name in NAMES for path in texts_of(name)}
    changed = {"/".join(path.split("/")[:3]) for path in paths}
    assert any(path.startswith(SHIPPED[1]) for path in paths)
    assert len(shipped) > 12
    assert sorted(shipped - changed) == []


def test_no_mutant_uses_a_name_that_does_not_exist(tmp_path: Path) -> None:
    """Such a name would fail any test that comes by, and the mutant would pass for caught."""
    for name in NAMES:
        for path, text in texts_of(name).items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    command = ["ruff", "check", "--isolated", "--no-cache", "--select", "F821,F822,F823", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *command], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_sample_is_the_same_for_one_seed_and_another_for_another() -> None:
    mutants = all_mutants()
    one, again, other = (sampled(mutants, 5, seed) for seed in ("one", "one", "other"))
    assert one == again != other
    assert len(set(one)) == 5
    assert all(each.caught_by[0].endswith(".py") for each in one)


def test_a_sample_of_more_than_there_are_is_all_that_a_file_of_tests_notices() -> None:
    slow = Mutant("01-slow", "", ("tests/sim/test_seeds.py",), ())
    quick = Mutant("02-quick", "", ("tests/unit/cli/test_queues.py", "tests/sim"), ())
    assert sampled([slow, quick], 9, "") == [quick]
    with pytest.raises(MutantError, match="none of these"):
        sampled([slow], 1, "")


SOURCE = """\
LIMIT = 1
a = 1


def first(a):
    if a:
        a = 1
        return a
    return 2


class Kept:
    limit = LIMIT

    def first(self):
        a = 1
        if a:
            return 2
        return 2
"""


def a_tree(root: Path, files: dict[str, str]) -> Tree:
    for path, text in files.items():
        file = root / "src" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Tree(root)


def made(folder: Path, changes: str) -> Mutant:
    file = folder / "00-made.mutant"
    file.write_text(f"Breaks: all.\nCaught-by: tests/unit\n\n{changes}")
    return read(file)


@pytest.mark.parametrize(
    ("changes", "replaced", "by"),
    [
        ("In: here.first\n- a = 1\n+ a = 2\n", "        a = 1\n        r", "        a = 2\n        r"),
        ("In: Kept.first\n- a = 1\n", "        a = 1\n        if", "        if"),
        (
            "In: Kept.first\n  a = 1\n+ a += 1\n",
            "        a = 1\n        if",
            "        a = 1\n        a += 1\n        if",
        ),
        ("In: Kept.first\n- if a:\n-     return 2\n", "        if a:\n            return 2\n", ""),
        (
            "In: Kept.first\n-        if a:\n+        if not a:\n",
            "        if a:\n            r",
            "        if not a:\n            r",
        ),
        ("In: Kept\n- limit = LIMIT\n+ limit = 2\n", "limit = LIMIT", "limit = 2"),
        ("In: agent_scheduler.here\n- a = 1\n+ a = 2\n", "LIMIT = 1\na = 1", "LIMIT = 1\na = 2"),
    ],
)
def test_lines_are_looked_for_in_what_is_named_and_nowhere_else(
    tmp_path: Path, changes: str, replaced: str, by: str
) -> None:
    tree = a_tree(tmp_path, {"agent_scheduler/here.py": SOURCE})
    assert SOURCE.count(replaced) == 1
    expected = {"src/agent_scheduler/here.py": SOURCE.replace(replaced, by)}
    assert mutated(made(tmp_path, changes), tree) == expected


def test_a_mutant_is_found_where_its_function_went(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, {"agent_scheduler/kept/there.py": SOURCE})
    mutant = made(tmp_path, "In: Kept.first\n- a = 1\n+ a = 3\n")
    assert list(mutated(mutant, tree)) == ["src/agent_scheduler/kept/there.py"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ("In: Kept.second\n- a = 1\n", "'a = 1' does not fit Kept.second, which is not there; it fits"),
        (
            "In: before.Kept.first\n- return 2\n+ return 3\n",
            "fit before.Kept.first, which is not there; it fits agent_scheduler.here.first$",
        ),
        ("In: before.Kept\n- limit = LIMIT\n", "is not there; it fits agent_scheduler.here.Kept$"),
        ("In: first\n- a = 1\n", "any of agent_scheduler.here.first, agent_scheduler.here.Kept.first"),
        ("In: conftest\n- a = 1\n", "does not fit conftest, which is not there"),
        ("In: here.first\n- b = 3\n+ b = 4\n", "'b = 3' does not fit here.first$"),
        (
            "In: here.first\n- LIMIT = 1\n",
            "'LIMIT = 1' does not fit here.first; it fits agent_scheduler.here$",
        ),
        ("In: Kept.first\n- return 2\n", "fits 2 places in Kept.first"),
        ("In: here.first\n- = 1\n+ = 2\n", "does not fit"),
        ("In: here.first\n- a = 1\n+ a = 1\n", "changes nothing"),
        ("In: here.first\n- a = 1\n+ a = 1  # one\n", "changes nothing"),
        ("In: here.first\n- a = 1\n+ a = = 1\n", "no longer compiles"),
        (
            "In: here.first\n  a = 1\n- return a\n\n- a = 1\n+ a = 2\n",
            "have line 7 of src/agent_scheduler/here.py in",
        ),
    ],
)
def test_a_mutant_that_fits_nowhere_or_changes_nothing_is_an_error(
    tmp_path: Path, changes: str, problem: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/conftest.py").write_text(SOURCE)
    tree = a_tree(tmp_path, {"agent_scheduler/here.py": SOURCE})
    mutant = made(tmp_path, changes)
    with pytest.raises(MutantError, match=problem):
        check_difference(mutant, tree, mutated(mutant, tree))


SEVERAL = """\
In: here.first
  a = 1
+ a = 2

- return 2

In: agent_scheduler.here
- a = 1

In: there
- b = 1
+ b = 2
"""


def test_places_of_one_mutant_are_found_in_the_source_as_it_was(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, {"agent_scheduler/here.py": SOURCE, "embedded_kubernetes/there.py": "b = 1\n"})
    here = SOURCE.replace("LIMIT = 1\na = 1\n", "LIMIT = 1\n")
    here = here.replace("        return a\n    return 2\n", "        a = 2\n        return a\n")
    expected = {"src/agent_scheduler/here.py": here, "src/embedded_kubernetes/there.py": "b = 2\n"}
    assert mutated(made(tmp_path, SEVERAL), tree) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("In: x\n- a\n", "has to begin"),
        ("Breaks: all.\n\nIn: x\n- a\n", "has to begin"),
        ("Breaks: all.\nCaught-by: tests/unit\nIn: x\n- a\n", "a blank line has to follow"),
        ("Breaks: all.\nCaught-by: tests/unit\n", "changes nothing"),
        ("Breaks: all.\nCaught-by: tests/unit\n\n- a\n", "has to say where '- a' stands"),
        ("Breaks: all.\nCaught-by: tests/unit\n\nIn: x\n* a\n", "begins neither with"),
        ("Breaks: all.\nCaught-by: tests/unit\n\nIn: x\n+ a\n", "a line in x that is there"),
    ],
)
def test_a_mutant_without_its_header_or_its_lines_is_an_error(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "01-x.mutant"
    path.write_text(text)
    with pytest.raises(MutantError, match=problem):
        read(path)


def test_a_fault_of_the_embedded_server_is_tried_with_the_folder_that_tests_its_module(
    tmp_path: Path,
) -> None:
    for file in (
        "embedded/api/test_store.py",
        "embedded/api/test_other.py",
        "embedded/controllers/test_jobs.py",
    ):
        (tmp_path / "tests" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / file).touch()
    found = stages_of("src/embedded_kubernetes/store.py", ["tests/e2e"], tmp_path)
    assert found == [
        ["tests/embedded/api/test_store.py"],
        ["tests/embedded/api/test_other.py"],
        ["tests/e2e"],
    ]
    found = stages_of("src/embedded_kubernetes/workloads/jobs.py", [], tmp_path)
    assert found == [["tests/embedded/controllers/test_jobs.py"]]
