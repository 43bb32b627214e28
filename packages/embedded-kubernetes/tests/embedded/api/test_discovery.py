"""Discovery documents, beyond the recording."""

from __future__ import annotations

import pytest

from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.crd import resource_of
from embedded_kubernetes.discovery import respond

from ..support import cases, definition


def test_custom_groups_follow_the_built_in_ones_and_prefer_their_stablest_version():
    versions = ("v1alpha1", "v2", "v1beta2", "v1")
    custom = [resource_of(definition(name=version), version) for version in versions]
    answer = respond("/apis", "", [*BUILTIN, *custom])
    last = answer[0]["groups"][-1]
    assert last["name"] == "example.com"
    assert [version["version"] for version in last["versions"]] == ["v2", "v1", "v1beta2", "v1alpha1"]
    assert last["preferredVersion"]["version"] == "v2"


@pytest.mark.parametrize("path", ["/apis/none.example.com", "/apis/apps/v2", "/api/v2", "/nothing"])
def test_what_is_not_served_has_no_document(path):
    assert respond(path, "", BUILTIN) is None


@cases("""
    accept | aggregated
    '' | false
    application/json | false
    application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList | true
    application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json | true
    application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList | false
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList | true
    application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList | false
    """)
def test_the_aggregated_form_is_answered_to_those_who_ask_for_it_first(accept, aggregated):
    answer = respond("/apis", accept, BUILTIN)
    assert answer is not None
    document, content_type = answer
    assert (document["kind"] == "APIGroupDiscoveryList") is aggregated
    assert ("as=APIGroupDiscoveryList" in content_type) is aggregated
