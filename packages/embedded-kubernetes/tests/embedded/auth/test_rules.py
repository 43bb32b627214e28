"""Rules of RBAC: the requests that one allows, and rules that cover others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_kubernetes.auth.attributes import Attributes, of_path
from embedded_kubernetes.auth.rules import EVERYTHING, PolicyRule, missing

PODS = PolicyRule(("get", "list"), ("",), ("pods",))


def asked(verb: str, resource: str, *, group: str = "", name: str = "") -> Attributes:
    kind, _, below = resource.partition("/")
    return Attributes(verb, group, "v1", kind, below, "ns", name)


def test_verb_group_and_name_have_to_fit():
    rule = PolicyRule(("get",), ("apps",), ("deployments",), ("web",))
    assert rule.allows(asked("get", "deployments", group="apps", name="web"))
    assert not rule.allows(asked("list", "deployments", group="apps", name="web"))
    assert not rule.allows(asked("get", "deployments", group="", name="web"))
    assert not rule.allows(asked("get", "deployments", group="apps", name="other"))
    assert not rule.allows(asked("get", "deployments", group="apps"))
    assert PolicyRule(("*",), ("*",), ("*",)).allows(asked("get", "deployments", group="apps", name="web"))


def test_a_rule_about_resources_says_nothing_of_paths_nor_the_other_way_round():
    everything, paths = EVERYTHING
    assert not everything.allows(of_path("get", "/metrics"))
    assert not paths.allows(asked("get", "pods"))


@pytest.mark.parametrize(
    ("owned", "wanted", "lacking"),
    [
        (PODS, PODS, []),
        (PODS, PolicyRule(("get",), ("",), ("pods",), ("one",)), []),
        (PolicyRule(("get",), ("",), ("pods",), ("one",)), PolicyRule(("get",), ("",), ("pods",)), ["pods"]),
        (PolicyRule(("get",), ("",), ("pods",), ("one",)), PolicyRule(("get",), ("",), ("pods",), ("one",)), []),
        (PODS, PolicyRule(("get",), ("",), ("pods/status",)), ["pods/status"]),
        (PolicyRule(("get",), ("",), ("*/status",)), PolicyRule(("get",), ("",), ("pods/status",)), []),
        (PolicyRule(("get",), ("*",), ("*",)), PolicyRule(("get",), ("apps",), ("x/y",)), []),
        (PolicyRule(("*",), ("",), ("pods",)), PolicyRule(("*",), ("",), ("pods",)), []),
        (PODS, PolicyRule(("*",), ("",), ("pods",)), ["pods"]),
    ],
)
def test_what_is_lacking(owned, wanted, lacking):
    assert [rule.resources[0] for rule in missing([owned], [wanted])] == lacking


_WORDS = st.lists(st.sampled_from(["*", "a", "b", "a/x", "*/x"]), min_size=1, max_size=2).map(tuple)
_RULES = st.builds(PolicyRule, _WORDS, _WORDS, _WORDS, st.one_of(st.just(()), _WORDS))


@given(st.lists(_RULES, max_size=3), _RULES, st.tuples(*[st.sampled_from(["a", "b", "c"])] * 4), st.booleans())
def test_who_covers_a_rule_is_allowed_all_that_it_allows(owned, wanted, words, below):
    verb, group, resource, name = words
    request = Attributes(verb, group, "v1", resource, "x" if below else "", "ns", name)
    if wanted.allows(request) and not missing(owned, [wanted]):
        assert any(rule.allows(request) for rule in owned)
