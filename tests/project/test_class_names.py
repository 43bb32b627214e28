"""No two modules of a distribution define classes of one name, except for those listed here with the reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.mutants.catalogue import SHIPPED
from tests.support.places import ROOT

#: Names that several modules define -> why. At most twenty.
SHARED = {
    "Counter": "Kubernetes' counter of devices (`objects.dra`), and a counter of metrics.",
    "LabelSelector": "A kind of Kubernetes; `apimachinery.labels` has the compiled form.",
    "NodeAffinity": "A kind of Kubernetes, and the plugin that kube-scheduler calls by this name.",
    "NodeShard": "A kind of Volcano, and the plugin for it.",
    "PluginSet": "A part of KubeSchedulerConfiguration: as written in the file, and as the engine reads it.",
}


def shared(folder: Path) -> dict[str, list[str]]:
    """Return the names of classes that several modules below `folder` define, each with these modules."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(file.relative_to(folder).as_posix())
    return {name: sorted(files) for name, files in modules.items() if len(files) > 1}


@pytest.mark.parametrize("folder", SHIPPED)
def test_a_class_name_is_defined_by_one_module_of_a_distribution(folder: str) -> None:
    found = shared(ROOT / folder)
    assert {name: files for name, files in found.items() if name not in SHARED} == {}, "name them differently"


def test_every_exception_is_still_one() -> None:
    found = {name for folder in SHIPPED for name in shared(ROOT / folder)}
    assert SHARED.keys() - found == set()
    assert len(SHARED) <= 20
