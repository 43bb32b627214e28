"""Controllers are chosen by their names in kube-controller-manager."""

from __future__ import annotations

import re

import pytest

from embedded.support import World
from embedded_kubernetes.controller_list import NAMES, chosen, start
from embedded_kubernetes.podgc import PodCollector
from embedded_kubernetes.protection import Protection
from embedded_kubernetes.resource_claims import ResourceClaims

from ..places import README


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", {*NAMES}),
        ("", set()),
        ("resourceclaim-controller", {"resourceclaim-controller"}),
        ("*,-resourceclaim-controller", {*NAMES} - {"resourceclaim-controller"}),
        (" disruption-controller , -serviceaccount-controller", {"disruption-controller"}),
    ],
)
def test_a_list_names_controllers_or_all_but_some(text: str, names: set[str]) -> None:
    assert chosen(text) == names


def test_what_was_chosen_is_started_and_nothing_else() -> None:
    api = World(nodes="n1").api
    assert [type(each) for each in start(api, chosen("resourceclaim-controller"), kubelets=True)] == [ResourceClaims]
    assert ResourceClaims not in map(type, start(api, chosen("*,-resourceclaim-controller"), kubelets=True))
    # One controller has two names.
    either = chosen("*,-persistentvolume-protection-controller")
    assert [type(each) for each in start(api, either, kubelets=True)].count(Protection) == 1


def test_pods_of_missing_nodes_are_collected_only_where_kubelets_are_played() -> None:
    api = World(nodes="n1").api
    assert PodCollector in map(type, start(api, chosen("*"), kubelets=True))
    assert PodCollector not in map(type, start(api, chosen("*"), kubelets=False))


def test_every_controller_is_documented_and_no_other() -> None:
    section = README.read_text().partition("## Controllers\n")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)) == sorted(NAMES)
