"""The distributions of this repository fit one another, and the image's wheel has nothing but the scheduler."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import APIMACHINERY, BENCH, EMBEDDED, KUBE_CLIENT, ROOT

FOLDERS = (ROOT, APIMACHINERY, KUBE_CLIENT, EMBEDDED, BENCH)


def project(folder: Path) -> Any:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def about_wheel(folder: Path) -> Any:
    return project(folder)["tool"]["hatch"]["build"]["targets"]["wheel"]


def requirements(folder: Path) -> list[str]:
    about = project(folder)["project"]
    return [*about["dependencies"], *chain(*about.get("optional-dependencies", {}).values())]


OWN = {project(folder)["project"]["name"] for folder in FOLDERS}
VERSION = import_module("agent_scheduler").__version__


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_all_have_one_version_and_require_it_of_one_another(folder: Path) -> None:
    (package,) = about_wheel(folder)["packages"]
    assert import_module(Path(package).name).__version__ == VERSION
    own = [text for text in requirements(folder) if re.split(r"[\[=<>]", text)[0] in OWN]
    # An extra of the distribution itself has no version.
    name = project(folder)["project"]["name"]
    assert [text for text in own if not text.endswith(f"=={VERSION}") and not text.startswith(f"{name}[")] == []


def test_what_anybody_may_take_requires_nothing_of_the_scheduler() -> None:
    required = {
        folder: {re.split(r"[\[=<>]", text)[0] for text in requirements(folder)} & OWN
        for folder in (APIMACHINERY, KUBE_CLIENT, EMBEDDED)
    }
    assert required == {APIMACHINERY: set(), KUBE_CLIENT: {"apimachinery"}, EMBEDDED: {"apimachinery"}}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_imported_is_required(folder: Path) -> None:
    """Imports of the distributions of this repository count even under TYPE_CHECKING."""
    packages = {"agent_scheduler": "agent-scheduler", "bench": "agent-scheduler-bench"}
    packages |= {"apimachinery": "apimachinery", "embedded_kubernetes": "embedded-kubernetes"}
    packages |= {"kube_client": "kube-client"}
    text = "\n".join(file.read_text() for file in (folder / "src").rglob("*.py"))
    imported = set(re.findall(rf"^\s*(?:from|import) ({'|'.join(packages)})\b", text, re.MULTILINE))
    about = project(folder)["project"]
    required = {re.split(r"[\[=<>]", text)[0] for text in about["dependencies"]} | {about["name"]}
    assert {packages[each] for each in imported} <= required


def test_each_says_who_uses_it_and_under_which_licence() -> None:
    for folder in FOLDERS:
        about = project(folder)["project"]
        # The scheduler's wheel also has a library for the console.
        assert about["license"] == ("Apache-2.0 AND MIT" if folder == ROOT else "Apache-2.0")
        assert {"Typing :: Typed", "Programming Language :: Python :: 3 :: Only"} <= {*about["classifiers"]}
        (package,) = about_wheel(folder)["packages"]
        assert (folder / package / "py.typed").exists()
        assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
        assert about["requires-python"] == project(ROOT)["project"]["requires-python"]
        assert (folder / about["readme"]).read_text().startswith("# ")
