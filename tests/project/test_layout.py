"""Each test is in the folder of its code, so that its file is found by name.

tests/unit mirrors src/agent_scheduler, and the tests of kube-client its package.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import KUBE_CLIENT, ROOT, TESTS

SRC = ROOT / "src" / "agent_scheduler"
#: Folders of tests that assemble the product; the folders in them are packages of it.
FEATURES = TESTS / "features"


def modules(package: Path) -> set[str]:
    """Return the names of the modules and packages in a package, and its own name for its `__init__`."""
    inner = {file.stem for file in package.glob("*.py")} | {
        folder.name for folder in package.iterdir() if folder.is_dir()
    }
    return (inner | {package.name}) - {"__init__", "__pycache__"}


@pytest.mark.parametrize(
    ("tests", "source"), [(TESTS / "unit", SRC), (KUBE_CLIENT / "tests" / "kube", KUBE_CLIENT / "src" / "kube_client")]
)
def test_unit_tests_are_named_for_a_module_of_the_package_that_they_mirror(tests: Path, source: Path) -> None:
    strange = []
    for file in sorted(tests.rglob("test_*.py")):
        package = source / file.parent.relative_to(tests)
        name = file.stem.removeprefix("test_")
        known = modules(package) if package.is_dir() else set()
        if not any(name == module or name.startswith(f"{module}_") for module in known):
            strange.append(file.relative_to(ROOT).as_posix())
    assert strange == []


def test_folders_of_features_are_packages() -> None:
    folders = {path.name for path in FEATURES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert sorted(folders - modules(SRC)) == []
