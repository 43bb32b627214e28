"""Every mutant still fits the source as it stands; whether the tests catch it is for `make mutants` to say."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from .__main__ import sampled
from .mutant import PATCHES, SHIPPED, Hunk, Mutant, PatchError, all_mutants, check_difference, mutated, read
from .scratch import ROOT

NAMES = [path.stem for path in PATCHES.glob("*.patch")]


@cache
def texts_of(name: str) -> dict[str, str]:
    return mutated(read(PATCHES / f"{name}.patch"), ROOT)


def problem_of(name: str) -> str:
    try:
        mutant = read(PATCHES / f"{name}.patch")
        assert texts_of(name)
    except PatchError as error:
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
    """Numbers may be left out: patches that are made at the same time take theirs from different hundreds."""
    numbers = [name.split("-")[0] for name in NAMES]
    assert [number for number in numbers if number != f"{int(number):02}" or numbers.count(number) > 1] == []


def test_every_package_that_ships_has_mutants() -> None:
    shipped = {
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / SHIPPED[0]).iterdir()
        if (each / "__init__.py").exists()
    }
    paths = {path for mutant in all_mutants() for path in mutant.paths}
    changed = {"/".join(path.split("/")[:3]) for path in paths}
    assert any(path.startswith(SHIPPED[1]) for path in paths)
    assert len(shipped) > 12
    assert sorted(shipped - changed) == []


def test_no_mutant_uses_a_name_that_does_not_exist(tmp_path: Path) -> None:
    """Such a name would fail any test that comes by, and the mutant would pass for caught."""
    for name in NAMES:
        for path, text in texts_of(name).items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True)
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
    quick = Mutant("02-quick", "", ("tests/unit/test_docs.py", "tests/sim"), ())
    assert sampled([slow, quick], 9, "") == [quick]
    with pytest.raises(PatchError, match="none of these"):
        sampled([slow], 1, "")


def made(*hunks: tuple[str, str]) -> Mutant:
    path = "src/agent_scheduler/here.py"
    return Mutant("00-made", "", (), tuple(Hunk(path, 1, old, new) for old, new in hunks))


@pytest.mark.parametrize(
    ("hunks", "problem"),
    [
        ([("b = 3\n", "b = 4\n")], "does not fit"),
        ([("a = 1\n", "a = 2\n")], "fits 2 places"),
        ([("b = 2\n", "b = 2\n")], "changes nothing"),
        ([("b = 2\n", "b = 2  # two\n")], "changes nothing"),
        ([("b = 2\n", "b = = 2\n")], "no longer compiles"),
        ([(" = 2\n", " = 3\n")], "does not fit"),
    ],
)
def test_a_patch_that_fits_nowhere_or_changes_nothing_is_an_error(
    tmp_path: Path, hunks: list[tuple[str, str]], problem: str
) -> None:
    source = tmp_path / "src/agent_scheduler/here.py"
    source.parent.mkdir(parents=True)
    source.write_text("a = 1\nb = 2\na = 1\nc = 3\n")
    mutant = made(*hunks)
    with pytest.raises(PatchError, match=problem):
        check_difference(mutant, tmp_path, mutated(mutant, tmp_path))


def test_hunks_are_put_in_one_after_the_other(tmp_path: Path) -> None:
    source = tmp_path / "src/agent_scheduler/here.py"
    source.parent.mkdir(parents=True)
    source.write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    mutant = made(("a = 1\n", "a = 0\na = 9\n"), ("b = 2\n", ""), ("d = 4\n", "d = 5\n"))
    assert mutated(mutant, tmp_path) == {"src/agent_scheduler/here.py": "a = 0\na = 9\nc = 3\nd = 5\n"}


def test_a_mutant_changes_only_what_is_shipped(tmp_path: Path) -> None:
    mutant = Mutant("00-made", "", (), (Hunk("tests/conftest.py", 1, "a\n", "b\n"),))
    with pytest.raises(PatchError, match="is no file of"):
        mutated(mutant, ROOT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "has to begin"),
        ("Breaks: all.\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "has to begin"),
        ("Breaks: all.\nCaught-by: tests/unit\n", "no diff"),
        (
            "Breaks: all.\nCaught-by: tests/unit\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n*a\n",
            "no line of a unified diff",
        ),
    ],
)
def test_a_patch_without_its_header_or_its_diff_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "01-x.patch"
    path.write_text(text)
    with pytest.raises(PatchError, match=problem):
        read(path)
