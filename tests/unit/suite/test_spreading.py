"""Tests that share something stay together, and what takes long comes first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spreading import APART, FIRST, rank, scope

ROOT = Path(__file__).parents[3]


def test_a_file_stays_together_unless_its_tests_are_apart() -> None:
    assert scope("tests/unit/test_docs.py::test_a[1]") == "tests/unit/test_docs.py"
    assert scope(f"{APART[0]}::test_a[1]") == f"{APART[0]}::test_a[1]"


def test_what_is_named_is_there() -> None:
    for name in (*APART, *FIRST):
        assert list(ROOT.glob(f"{name}*")), name


def test_end_to_end_tests_come_before_the_others() -> None:
    names = ["tests/unit/test_docs.py::a", "tests/e2e/test_dra.py::b", "tests/e2e/test_faults.py::c"]
    assert sorted(names, key=rank) == names[::-1]


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
