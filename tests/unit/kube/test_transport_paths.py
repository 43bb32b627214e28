"""Whatever a name is, it stays one segment of a path."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from agent_scheduler.kube.transport import PodKey, pod_path, segment


@pytest.mark.parametrize("name", ["web-0.example", "a_b~c", "n" * 253])
def test_a_plain_name_stands_for_itself(name: str) -> None:
    assert segment(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "..%2f", "a?b#c", "system:node", "ü", "a\n", "a b"])
def test_any_other_is_escaped(name: str) -> None:
    assert unquote(segment(name)) == name
    assert not set(segment(name)) & set("/?# \n")


def test_a_pod_is_below_its_namespace() -> None:
    assert pod_path(PodKey("team/a", "p", "u")) == "/api/v1/namespaces/team%2Fa/pods/p"
