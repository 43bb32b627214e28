"""Every fault of the catalogue fits the source as it stands; whether the tests catch it is for `make verify` to say."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.project.promises import promises
from tests.support.places import DOCS, ROOT

from .catalogue import SHIPPED, MutantError, Tree, all_mutants, mutated
from .trying import sampled

#: More than these are made by `tests.mutants.generated`, which has no lines to keep.
MOST = 150
#: Decision records about where code stands, or how it is built; they promise nothing that a test could miss.
WITHOUT = {"0001", "0026", "0030", "0049", "0053", "0062"}


@cache
def texts() -> dict[str, dict[str, str]]:
    """Fault -> what the file that it changes becomes."""
    tree = Tree(ROOT)
    return {mutant.name: mutated(mutant, tree) for mutant in all_mutants()}


@pytest.mark.wide
def test_every_fault_fits_and_says_what_it_breaks_and_who_notices() -> None:
    mutants = all_mutants()
    assert len(texts()) == len(mutants) <= MOST
    assert [each.name for each in mutants if not each.breaks.endswith(".")] == []
    missing = {path for each in mutants for path in each.caught_by if not (ROOT / path).exists()}
    assert missing == set()


def test_every_promise_and_every_decision_has_a_fault() -> None:
    named = {promise for mutant in all_mutants() for promise in mutant.promises}
    records = {file.name[:4] for file in (DOCS / "decisions").glob("0*.md")}
    guaranteed = {code for code, (page, _) in promises().items() if page == "reliability.md"}
    assert sorted(guaranteed - named) == []
    assert sorted(records - WITHOUT - named) == []
    assert sorted(named - set(promises()) - records) == []


@pytest.mark.wide
def test_every_package_that_ships_has_faults() -> None:
    shipped = {
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / SHIPPED[0]).iterdir()
        if (each / "__init__.py").exists()
    }
    paths = {path for files in texts().values() for path in files}
    changed = {"/".join(path.split("/")[:3]) for path in paths}
    assert [folder for folder in SHIPPED if not any(path.startswith(folder) for path in paths)] == []
    assert len(shipped) > 12
    assert sorted(shipped - changed) == []


@pytest.mark.wide
def test_no_fault_uses_a_name_that_does_not_exist(tmp_path: Path) -> None:
    """Such a name would fail any test that comes by, and the fault would pass for caught."""
    for name, files in texts().items():
        for path, text in files.items():
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
    assert len({each.name for each in one}) == 5
    assert len(sampled(mutants, len(mutants) + 1, "")) == len(mutants)


ENTRY = "[[fault]]\nname = 'x'\nbreaks = 'b.'\ncaught_by = ['t']\nin = 'f'\nfind = 'a'\nput = 'b'\n"
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


def a_tree(root: Path, path: str = "agent_scheduler/here.py") -> Tree:
    file = root / "src" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SOURCE)
    return Tree(root)


def changed(tree: Tree, where: str, find: str, put: str) -> dict[str, str]:
    text = ENTRY.replace("'f'", f"'{where}'").replace("'a'", f"'{find}'").replace("'b'", f"'''{put}'''")
    (mutant,) = all_mutants(text)
    return mutated(mutant, tree)


@pytest.mark.parametrize(
    ("where", "find", "put", "replaced", "by"),
    [
        ("here.first", "a = 1", "a = 2", "        a = 1\n        r", "        a = 2\n        r"),
        ("Kept.first", "if a: return 2", "pass", "if a:\n            return 2", "pass"),
        ("Kept.first", "a = 1", "a = 1\na += 1", "a = 1\n        if", "a = 1\n        a += 1\n        if"),
        ("Kept", "LIMIT", "2", "limit = LIMIT", "limit = 2"),
        ("agent_scheduler.here", "a = 1", "a = 2", "LIMIT = 1\na = 1", "LIMIT = 1\na = 2"),
    ],
)
def test_a_place_is_looked_for_in_what_is_named_and_nowhere_else(
    tmp_path: Path, where: str, find: str, put: str, replaced: str, by: str
) -> None:
    assert SOURCE.count(replaced) == 1
    expected = {"src/agent_scheduler/here.py": SOURCE.replace(replaced, by)}
    assert changed(a_tree(tmp_path), where, find, put) == expected


def test_a_fault_follows_its_function(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, "agent_scheduler/kept/there.py")
    assert list(changed(tree, "Kept.first", "a = 1", "a = 3")) == ["src/agent_scheduler/kept/there.py"]


@pytest.mark.parametrize(
    ("where", "find", "put", "problem"),
    [
        ("Kept.second", "a = 1", "a = 2", "'a = 1' does not fit Kept.second, which is not there"),
        ("first", "a = 1", "a = 2", "any of agent_scheduler.here.first, agent_scheduler.here.Kept.first"),
        ("here.first", "b = 3", "b = 4", "'b = 3' does not fit here.first$"),
        ("here.first", "LIMIT = 1", "pass", "does not fit here.first$"),
        ("Kept.first", "return 2", "return 3", "fits 2 places in Kept.first"),
        ("here.first", "a = 1", "a = 1  # one", "changes nothing"),
        ("here.first", "a = 1", "a = = 1", "no longer compiles"),
    ],
)
def test_a_fault_that_fits_nowhere_or_changes_nothing_is_an_error(
    tmp_path: Path, where: str, find: str, put: str, problem: str
) -> None:
    with pytest.raises(MutantError, match=problem):
        changed(a_tree(tmp_path), where, find, put)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ENTRY.replace("find = 'a'\n", ""), "missing required field `find`"),
        (ENTRY.replace("find = 'a'", "find = ' '"), r"matching regex .* at `\$.fault\[0\].find`"),
        (ENTRY.replace("['t']", "[]"), r"length >= 1 - at `\$.fault\[0\].caught_by`"),
        (ENTRY + "found = 1\n", "unknown field `found`"),
        ("[[fault]", "catalogue.toml: "),
    ],
)
def test_an_entry_that_lacks_something_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(MutantError, match=problem):
        all_mutants(text)
