"""Several processes run each test once, those of one file together, and a file that cannot be read is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spreading import APART, COMPUTING, WAITING, is_in_portion
from tests.support.places import ROOT


def pytest_in(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder, which use the modules of the checkout."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    about = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=folder, env=about, capture_output=True, text=True, check=False, timeout=100)


def test_what_is_named_is_there() -> None:
    for name in (*APART, *WAITING, *COMPUTING):
        assert list(ROOT.glob(f"{name}*")), name


def test_every_test_is_run_once_by_several_processes(tmp_path: Path) -> None:
    """The options are those of `make test`, with two files of three tests."""
    (tmp_path / "conftest.py").write_text(
        "from tests.plugin import pytest_addoption, pytest_collection_modifyitems, pytest_xdist_make_scheduler\n"
    )
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text("import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): pass\n")
    done = pytest_in(ROOT, "-n2", "-v", "--rootdir", str(tmp_path), str(tmp_path))
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    by_file = {
        name: {line.split("]")[0] for line in done.stdout.splitlines() if name in line and "PASSED" in line}
        for name in ("test_one.py", "test_two.py")
    }
    assert {len(workers) for workers in by_file.values()} == {1}
    some = pytest_in(ROOT, "-n2", "-v", "--portion=50", "--portion-seed=abc", "--rootdir", str(tmp_path), str(tmp_path))
    chosen = [each for each in range(3) for name in by_file if is_in_portion(f"{name}::test_it[{each}]", 50, "abc")]
    assert f"{len(chosen)} passed" in some.stdout, some.stdout + some.stderr


def test_a_portion_is_about_its_part_of_the_tests_and_another_seed_selects_others() -> None:
    tests = [f"tests/test_{each}.py::test_it" for each in range(10_000)]
    of_seed = {seed: {each for each in tests if is_in_portion(each, 20, seed)} for seed in ("one", "two")}
    assert all(1800 < len(chosen) < 2200 for chosen in of_seed.values())
    assert 300 < len(of_seed["one"] & of_seed["two"]) < 500, "as many as by chance"
    assert all(is_in_portion(each, 100, "one") for each in tests)


def test_a_file_that_cannot_be_imported_is_an_error_of_a_run_of_all_tests(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = sub\n")
    (tmp_path / "conftest.py").write_text("from tests.plugin import pytest_collection\n")
    (tmp_path / "sub").mkdir()
    files = {
        "good": "def test_it(): pass\n",
        "broken": "import nothing_of_that_name\n",
        "lacking": "from tests.support import needed\nneeded.need(False, 'there is none of it')\n",
    }
    for name, text in files.items():
        (tmp_path / "sub" / f"test_{name}.py").write_text(text)
    done = pytest_in(tmp_path, "-n2", CI="true")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No module named 'nothing_of_that_name'" in done.stdout
    assert "there is none of it; with CI=true" in done.stdout
