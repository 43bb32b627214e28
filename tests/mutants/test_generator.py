"""The generator creates each kind of fault where it belongs, and knows which tests must detect it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import SOURCES

from .generated import changed_functions, compiles, faults_of, files_under, sampled, stages_of
from .generator import Source, edits

LINES = [
    ("return a < b", "return a <= b", "< to <="),
    ("return a is not b", "return a is b", "is not to is"),
    ("return a not in b", "return a in b", "not in to in"),
    ("return a and b", "return a or b", "and to or"),
    ("return a and b", "return True and b", "operand of and left out"),
    ("return a or b", "return a or False", "operand of or left out"),
    ("return not a", "return (a)", "not left out"),
    ("return a if b else 1", "return a if (not (b)) else 1", "condition negated"),
    ("return [x for x in a if x]", "return [x for x in a if True]", "filter left out"),
    ("return a + 1", "return a - 1", "+ to -"),
    ("return a + 1", "return a + 2", "1 to 2"),
    ("return True", "return False", "True to False"),
    ("return min(a, b)", "return max(a, b)", "min to max"),
    ("return a", "return None", "value not returned"),
    ("a.append(b)", "pass", "call left out"),
    ("await a.close(b)", "pass", "call left out"),
    ("a += b", "a -= b", "+= to -="),
    ("a.b = 1", "pass", "assignment left out"),
    ("raise ValueError(a)", "pass", "statement left out"),
]


def module(line: str) -> Source:
    return Source(f'"""Ä."""\n\nLIMIT = 1 + 1\n\n\nasync def f(a: int = 1, b: str | None = None):\n    {line}\n')


@pytest.mark.parametrize(("line", "after", "kind"), LINES, ids=[kind for _, _, kind in LINES])
def test_each_kind_of_fault_is_made(line: str, after: str, kind: str) -> None:
    source = module(line)
    found = [source.edited(edit) for edit in edits(source) if edit.kind == kind]
    assert module(after).bytes.decode() in found


@pytest.mark.parametrize("line", ["pass", "return 'a' + f'{a}'", "return None", "x: int = a", "'text'"])
def test_texts_annotations_defaults_and_what_is_outside_of_functions_stay(line: str) -> None:
    assert [edit for edit in edits(module(line)) if edit.kind != "value not returned"] == []


def test_a_fault_names_its_function_and_line() -> None:
    source = Source("class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n")
    (edit,) = (each for each in edits(source, ["A.g"]) if each.kind == "2 to 3")
    assert (edit.function, edit.line) == ("A.g", 6)


def test_a_sample_is_the_same_for_one_seed_and_all_of_it_compiles() -> None:
    faults = faults_of(files_under(["src/agent_scheduler/engine/quotas"]))
    one, again, other = (sampled(faults, 20, seed) for seed in ("one", "one", "other"))
    assert one == again != other
    assert len({str(fault) for fault in one}) == 20
    assert all(compiles(fault) for fault in one)


@pytest.mark.parametrize("path", ["tests", "src/nothing.py", "../elsewhere"])
def test_only_what_ships_is_changed(path: str) -> None:
    with pytest.raises(ValueError, match=f"{path} is no file or folder of src/, packages/"):
        files_under([path])


def test_the_functions_that_a_commit_changes_are_found() -> None:
    assert changed_functions("HEAD").keys() <= set(files_under(map(str, SOURCES)))
    with pytest.raises(ValueError, match="git cannot compare with 'no-such-commit': fatal"):
        changed_functions("no-such-commit")


def test_the_tests_of_the_module_come_first_then_those_of_its_package(tmp_path: Path) -> None:
    folder = tmp_path / "tests/unit/engine"
    folder.mkdir(parents=True)
    for name in ("test_book.py", "test_book_faults.py", "test_books.py", "world.py"):
        (folder / name).touch()
    features = tmp_path / "tests/features/fastpath"
    features.mkdir(parents=True)
    (features / "test_gangs.py").touch()
    (tmp_path / "tests/unit/binding").mkdir()
    assert stages_of("src/agent_scheduler/binding/binder.py", [], tmp_path) == [
        ["tests/features/fastpath/test_gangs.py"]
    ]
    assert stages_of("src/agent_scheduler/engine/book.py", ["tests/sim"], tmp_path) == [
        ["tests/unit/engine/test_book.py", "tests/unit/engine/test_book_faults.py"],
        ["tests/unit/engine/test_books.py"],
        ["tests/sim"],
    ]


def test_a_fault_of_the_embedded_server_is_tried_with_the_folder_that_tests_its_module(tmp_path: Path) -> None:
    package = "packages/embedded-kubernetes"
    tests, source = f"{package}/tests/embedded", f"{package}/src/embedded_kubernetes"
    for file in ("api/test_store.py", "api/test_other.py", "controllers/test_jobs.py"):
        (tmp_path / tests / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / tests / file).touch()
    found = stages_of(f"{source}/store.py", ["tests/e2e"], tmp_path)
    assert found == [[f"{tests}/api/test_{name}.py"] for name in ("store", "other")] + [["tests/e2e"]]
    found = stages_of(f"{source}/workloads/jobs.py", [], tmp_path)
    assert found == [[f"{tests}/controllers/test_jobs.py"]]
