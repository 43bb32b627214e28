"""Pods get each claim of their templates exactly once."""

from __future__ import annotations

import pytest

from embedded.support import CLAIMS, DEFAULT, PODS, TEMPLATES, ClaimsWorld, named
from embedded_kubernetes.generated_claims import POD_CLAIM_NAME

_REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
ADMIN_ACCESS = {"spec": {"devices": {"requests": [_REQUEST]}}}


def allow_admin_access(world: ClaimsWorld, value: str | None) -> None:
    world.patch(DEFAULT, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}})


@pytest.fixture
def world() -> ClaimsWorld:
    return ClaimsWorld()


def test_a_claim_is_made_from_the_template_owned_by_the_pod_and_told_in_its_status(world: ClaimsWorld) -> None:
    world.add_template(labels={"team": "a"}, annotations={"note": "b"})
    uid = world.add_pod(gpu="template/t")
    world.settle()
    ((name, claim),) = world.claims().items()
    assert world.told() == {"gpu": name}
    assert name.startswith("p-gpu-")
    assert len(name) == len("p-gpu-") + 5
    assert claim["metadata"]["labels"] == {"team": "a"}
    assert claim["metadata"]["annotations"] == {"note": "b", POD_CLAIM_NAME: "gpu"}
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
    owner = {**about, "controller": True, "blockOwnerDeletion": True}
    assert claim["metadata"]["ownerReferences"] == [owner]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert claim["spec"]["devices"]["requests"] == [{"name": "r", "exactly": exactly}]


def test_long_names_are_cut_so_that_something_of_both_stays(world: ClaimsWorld) -> None:
    world.add_template()
    world.add_pod("p" * 100, **{"e" * 50: "template/t"})
    world.settle()
    (name,) = world.claims()
    assert len(name) <= 63
    assert name.startswith("p" * 30)
    assert "-" + "e" * 15 in name


def test_a_pod_waits_for_its_template_says_so_once_and_gets_its_claim_when_the_template_comes(
    world: ClaimsWorld,
) -> None:
    world.add_template("other")
    world.add_pod("late", gpu="template/t", more="template/other")
    world.add_pod("never", gpu="template/none")
    world.settle()
    assert world.told("late") == {}
    said = 'PodResourceClaim gpu: template "t" not found'
    assert ("FailedResourceClaimCreation", said, 1) in world.warnings()
    assert len(world.warnings()) == 2
    before = world.store.rv
    world.settle(600)
    assert world.store.rv == before
    world.add_template()
    world.settle()
    assert sorted(world.told("late")) == ["gpu", "more"]
    assert world.told("never") == {}
    assert len(world.claims()) == 2


def test_a_claim_that_the_server_refuses_is_tried_again_ever_more_rarely(world: ClaimsWorld) -> None:
    allow_admin_access(world, "true")
    world.post(TEMPLATES, named("t", spec=ADMIN_ACCESS))
    allow_admin_access(world, None)
    world.add_pod(gpu="template/t")
    world.settle(16)
    ((reason, said, count),) = world.warnings()
    assert reason == "FailedResourceClaimCreation"
    assert "resource.kubernetes.io/admin-access" in said
    # At once, and after 1, 3, 7 and 15 seconds.
    assert count == 5
    allow_admin_access(world, "true")
    world.settle(20)
    assert len(world.claims()) == 1
    assert world.told()


def test_claims_of_one_template_are_alike_but_for_their_pods(world: ClaimsWorld) -> None:
    world.add_template(labels={"team": "a"}, annotations={"note": "100% b"})
    world.add_template("bare")
    # The annotation looks like the placeholder of a template.
    world.add_template("odd", annotations={"note": "\ue0001"})
    uids: set[str] = set()
    for template in ("t", "bare", "odd"):
        alike = []
        for number in range(3):
            pod = f"{template}{number}"
            uid = world.add_pod(pod, gpu=f"template/{template}")
            world.settle()
            claim = world.get(f"{CLAIMS}/{world.told(pod)['gpu']}")
            metadata = claim["metadata"]
            assert metadata.pop("name").startswith(metadata.pop("generateName"))
            owner = metadata["ownerReferences"][0]
            assert (owner.pop("name"), owner.pop("uid")) == (pod, uid)
            uids |= {uid, metadata.pop("uid")}
            del metadata["resourceVersion"]
            alike.append(claim)
        assert alike[0] == alike[1] == alike[2]
    assert len(uids) == 18
    records = list(world.store.tables["resource.k8s.io", "resourceclaims"].records.values())
    assert [record.fields for record in records] == [(record.name, "default") for record in records]
    assert len({record.owners for record in records}) == 9


def test_a_claim_that_belongs_to_another_pod_is_not_taken_for_the_pods_own(world: ClaimsWorld) -> None:
    world.add_template()
    world.add_pod(gpu="template/t")
    world.add_claim("stranger")
    status = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "stranger"}]}}
    world.patch(f"{PODS}/p/status", status)
    world.settle()
    assert world.told()["gpu"].startswith("p-gpu-")


def test_an_entry_that_was_found_needless_gets_no_claim(world: ClaimsWorld) -> None:
    world.add_template()
    world.add_pod(gpu="template/t")
    status = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    world.patch(f"{PODS}/p/status", status)
    world.settle()
    assert world.claims() == {}


def test_nothing_is_made_or_said_in_a_namespace_that_is_being_deleted(world: ClaimsWorld) -> None:
    world.namespace("team")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    spec = {"resourceClaims": [entry], "nodeName": "n1"}
    world.pod("p", namespace="team", finalizers=["example.com/hold"], spec=spec)
    world.controllers, controllers = [], world.controllers
    world.delete("/api/v1/namespaces/team")
    world.controllers = controllers
    controllers[0].advance()
    assert world.names("/api/v1/namespaces/team/events") == []
    world.settle(60)
    assert world.names("/api/v1/namespaces/team/pods") == ["p"]
