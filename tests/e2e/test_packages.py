"""Each distribution builds from its sources, and tests of those in `packages` pass in an environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from requirements.locks import FOLDER, read
from tests.support.needed import need
from tests.support.places import APIMACHINERY, BENCH, EMBEDDED, KUBE_CLIENT, ROOT

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

#: Distribution -> its tests; of embedded-kubernetes those of the command, the class, README.md and kopf.
TESTS = {KUBE_CLIENT: ("tests",), EMBEDDED: ("tests/embedded/assembly", "tests/embedded/clients")}


def run(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST_"))}
    environment = given | variables
    return subprocess.run(words, cwd=folder, env=environment, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for package in (APIMACHINERY, *TESTS):
        words = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
        done = run(sys.executable, *words, folder=package)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module", params=TESTS, ids=lambda folder: folder.name)
def package(request: pytest.FixtureRequest) -> Path:
    """Return the folder of the distribution."""
    assert isinstance(request.param, Path)
    return request.param


@pytest.fixture(scope="module")
def python(package: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of the environment of `package`, with the libraries that dev.lock pins."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=True)
    found = folder / "venv" / "bin" / "python"
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in read(FOLDER / "dev.lock")))
    words = ("-m", "pip", "install", "--quiet", "--find-links", wheels, "-c", constraints)
    done = run(found, *words, f"{package.name}[test]", folder=folder)
    need(done.returncode == 0, f"pip gets no packages here: {done.stderr[-300:]}")
    return found


@pytest.mark.parametrize("package", [ROOT, APIMACHINERY, *TESTS, BENCH], ids=lambda folder: folder.name)
def test_a_source_distribution_builds_the_wheel_that_the_repository_builds(package: Path, tmp_path: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build")
    done = run(*build, "-d", tmp_path, folder=package)
    assert done.returncode == 0, done.stderr
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    done = run(*build, "-t", "wheel", "-d", tmp_path / "again", folder=tmp_path / source.name.removesuffix(".tar.gz"))
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_its_tests_pass_without_anything_else_of_this_repository(package: Path, python: Path, tmp_path: Path) -> None:
    for name in ("tests", "docs"):
        if (package / name).is_dir():
            shutil.copytree(package / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy2(package / name, tmp_path / name)
    # Recordings are not beside the copy, so the tests that replay them are skipped, which they are not with CI=true.
    done = run(python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS[package], folder=tmp_path, CI="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(python, "-c", "import agent_scheduler", folder=tmp_path).returncode != 0


@pytest.mark.parametrize("package", [EMBEDDED], indirect=True, ids=["embedded-kubernetes"])
def test_its_command_is_there(python: Path, tmp_path: Path) -> None:
    done = run(python.with_name("embedded-kubernetes"), "--help", folder=tmp_path)
    assert done.returncode == 0 and "--nodes" in done.stdout
    done = run(python.with_name("embedded-kubernetes"), "--port", "0", "--nodes", "-1", folder=tmp_path)
    assert done.stderr == "embedded-kubernetes: --nodes: must be at least 0, not -1\n"
