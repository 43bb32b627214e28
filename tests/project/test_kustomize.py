"""Building the installed objects without kubectl gives the same result as kubectl."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.kustomize import by_kubectl, plainly, render, unusable
from tests.support.needed import kubectl, skip_where
from tests.support.places import CONFIG


def sorted_texts(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in objects)


@pytest.mark.parametrize(
    "installed", [pytest.param(each, marks=pytest.mark.wide) for each in ("controllers", "crd", "default")] + ["all"]
)
def test_both_ways_give_the_same_objects(installed: str, tmp_path: Path) -> None:
    kubectl()
    skip_where(unusable())
    shutil.copytree(CONFIG, tmp_path / "config")
    folder = tmp_path / "config" / ("default" if installed == "all" else installed)
    if installed == "all":
        components = [f"../components/{each.name}" for each in (CONFIG / "components").iterdir()]
        with (folder / "kustomization.yaml").open("a") as file:
            file.write(f"\ncomponents: {json.dumps(components)}\n")
    assert sorted_texts(plainly(folder)) == sorted_texts(by_kubectl(folder))


def test_objects_come_in_an_order_in_which_they_can_be_created() -> None:
    kinds = [each["kind"] for each in render(CONFIG / "default")]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("ClusterRole") < kinds.index("ClusterRoleBinding")
