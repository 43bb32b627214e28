"""Tests that share something stay together, what waits is mixed with what computes, and what takes long comes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spreading import APART, COMPUTING, WAITING, order, scope
from tests.support.places import ROOT


def test_a_file_stays_together_unless_its_cases_are_apart() -> None:
    assert scope("tests/project/test_docs.py::test_a[1]") == "tests/project/test_docs.py"
    assert scope(f"{APART[0]}::test_a[1]") == f"{APART[0]}::test_a[1]"
    assert scope(f"{APART[0]}::test_a") == APART[0]


def test_what_is_named_is_there() -> None:
    for name in (*APART, *WAITING, *COMPUTING):
        assert list(ROOT.glob(f"{name}*")), name


def test_what_waits_and_what_computes_are_taken_by_turns_before_all_else() -> None:
    waiting = [f"tests/e2e/test_{name}.py::test" for name in "abcd"]
    computing = [f"tests/sim/test_{name}.py::test" for name in "efgh"]
    rest = ["tests/project/test_docs.py::test"]
    places = order([*rest, *computing, *waiting])
    by_turns = [test for pair in zip(waiting, computing, strict=True) for test in pair]
    assert sorted([*rest, *computing, *waiting], key=lambda test: places[scope(test)]) == [*by_turns, *rest]


def test_what_takes_longest_comes_first_among_its_like() -> None:
    late, early = "tests/e2e/test_dra.py", "tests/e2e/test_faults.py"
    places = order([late, early])
    assert places[early] < places[late]


def test_every_test_is_run_once_by_several_processes(tmp_path: Path) -> None:
    """As `make test` runs them, with two files of three tests."""
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler\n"
    )
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(
            "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): pass\n"
        )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-n2",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    by_file = {
        name: {line.split("]")[0] for line in done.stdout.splitlines() if name in line and "PASSED" in line}
        for name in ("test_one.py", "test_two.py")
    }
    assert {len(workers) for workers in by_file.values()} == {1}


def test_a_file_that_cannot_be_imported_is_an_error_of_a_run_of_all_tests(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = sub\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection\n")
    (tmp_path / "sub").mkdir()
    files = {
        "good": "def test_it(): pass\n",
        "broken": "import nothing_of_that_name\n",
        "lacking": "from tests.support import needed\nneeded.need(False, 'there is none of it')\n",
    }
    for name, text in files.items():
        (tmp_path / "sub" / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-n2", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No module named 'nothing_of_that_name'" in done.stdout
    assert "there is none of it; with CI=true" in done.stdout
