"""Invariants of claims after random changes of pods and templates, however often the controller is restarted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from embedded.support import CLAIMS, PODS, TEMPLATES, ClaimsWorld
from embedded_kubernetes.resource_claims import DELETE_PROTECTION, ResourceClaims

FINAL = ("Succeeded", "Failed")


class History:
    """Random changes by users, kubelets and a scheduler, some of them between two steps of the controller."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ClaimsWorld()
        self.made = 0

    def pods(self) -> list[Any]:
        return self.world.get(PODS)["items"]

    def step(self) -> None:
        self.random.choice(
            (
                self.create_pod,
                self.create_pod,
                self.end_pod,
                self.delete_pod,
                self.bind,
                self.allocate,
                self.allocate,
                self.delete_claim,
                self.turn_template,
                self.turn_shared,
                self.restart,
            )
        )()
        if self.random.random() < 0.5:
            self.world.controllers[0].advance(most=self.random.randint(1, 3))

    def create_pod(self) -> None:
        # Few names, so that pods reuse those of others.
        name = f"p{self.random.randint(0, 5)}"
        entries: dict[str, str] = {}
        for entry in ("a", "b"):
            source = self.random.choice(("", "claim/shared", "template/t", "template/u"))
            if source:
                entries[entry] = source
        if not self.world.is_there(f"{PODS}/{name}"):
            self.world.add_pod(name, node=self.random.choice(("", "", "n1")), **entries)

    def _any_pod(self) -> Any:
        found = self.pods()
        return self.random.choice(found) if found else None

    def end_pod(self) -> None:
        if (pod := self._any_pod()) is not None:
            self.world.report(pod["metadata"]["name"], phase=self.random.choice(FINAL))

    def delete_pod(self) -> None:
        if (pod := self._any_pod()) is not None:
            grace = self.random.choice((0, 30))
            self.world.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=grace)

    def bind(self) -> None:
        if (pod := self._any_pod()) is not None and "nodeName" not in pod["spec"]:
            self.world.bind(pod["metadata"]["name"], "n1")

    def allocate(self) -> None:
        """Allocate like a scheduler, which may be late: the pod may be gone by then."""
        if (pod := self._any_pod()) is None:
            return
        told = self.world.told(pod["metadata"]["name"])
        for entry in pod["spec"].get("resourceClaims", ()):
            name = entry.get("resourceClaimName") or told.get(entry["name"], "")
            claim = self.world.claims().get(name)
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                continue
            consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            reserved = claim["status"].get("reservedFor", [])
            if self.random.random() < 0.3:
                consumer["uid"] = "of-a-pod-that-went"
            if "allocation" not in claim["status"]:
                self.world.allocate(name)
            # A scheduler may be stopped before it reserves.
            if self.random.random() < 0.8 and consumer["uid"] not in {each["uid"] for each in reserved}:
                self.world.change(f"{name}/status", {"status": {"reservedFor": [*reserved, consumer]}})

    def delete_claim(self) -> None:
        if names := [*self.world.claims()]:
            self.world.delete(f"{CLAIMS}/{self.random.choice(names)}")

    def turn_template(self) -> None:
        name = self.random.choice("tu")
        if self.world.is_there(f"{TEMPLATES}/{name}"):
            self.world.delete(f"{TEMPLATES}/{name}")
        else:
            self.world.add_template(name)

    def turn_shared(self) -> None:
        if not self.world.is_there(f"{CLAIMS}/shared"):
            self.world.add_claim()

    def restart(self) -> None:
        """Restart the controller, perhaps before a pod's status had the claims that were created for it."""
        if (pod := self._any_pod()) is not None and pod["status"]["phase"] not in FINAL:
            untold = {"status": {"resourceClaimStatuses": None}}
            self.world.patch(f"{PODS}/{pod['metadata']['name']}/status", untold)
        self.world.controllers = [ResourceClaims(self.world.api)]

    def check(self) -> None:
        claims = self.world.claims()
        pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
        live = {pod["metadata"]["uid"]: pod for pod in pods.values() if _may_run(pod)}
        owned: dict[str, list[str]] = {}
        for name, claim in claims.items():
            metadata, status = claim["metadata"], claim["status"]
            assert {each["uid"] for each in status.get("reservedFor", ())} <= {*live}
            assert "deletionTimestamp" not in metadata or status.get("reservedFor")
            assert ("allocation" in status) == (DELETE_PROTECTION in metadata.get("finalizers", ()))
            for owner in metadata.get("ownerReferences", ()):
                assert owner["uid"] in live, f"{name} outlived its pod"
                owned.setdefault(owner["uid"], []).append(name)
        templates = self.world.names(TEMPLATES)
        for uid, pod in live.items():
            told = self.world.told(pod["metadata"]["name"])
            wanted = [each for each in pod["spec"].get("resourceClaims", ()) if "resourceClaimTemplateName" in each]
            leaving = "deletionTimestamp" in pod["metadata"]
            if not leaving and all(each["resourceClaimTemplateName"] in templates for each in wanted):
                assert sorted(told) == sorted(each["name"] for each in wanted)
                assert sorted(told.values()) == sorted(owned.get(uid, []))
            if "nodeName" in pod["spec"] and not leaving:
                self._check_reserved(pod, told, claims)

    def check_books(self) -> None:
        """Check that the controller remembers the existing pods, and no others."""
        (controller,) = self.world.controllers
        assert isinstance(controller, ResourceClaims)
        pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
        told = {name: {*self.world.told(name).values()} for name in pods}
        uses = {
            f"default/{name}": {
                f"default/{claim}"
                for each in pod["spec"].get("resourceClaims", ())
                for claim in (*told[name], each.get("resourceClaimName", ""))
                if claim
            }
            for name, pod in pods.items()
        }
        with_claims = {pod["metadata"]["uid"] for pod in pods.values() if "resourceClaims" in pod["spec"]}
        assert controller._claiming == with_claims
        assert {key: {*claims} for key, claims in controller._users.by_key.items()} == {
            key: claims for key, claims in uses.items() if claims
        }
        by_claim = {(claim, pod) for claim, users in controller._users.by_value.items() for pod in users}
        assert by_claim == {(claim, pod) for pod, claims in uses.items() for claim in claims}
        awaiting = controller._awaiting
        assert {*awaiting.by_key} == {pod for users in awaiting.by_value.values() for pod in users}
        assert {*awaiting.by_key} <= {f"default/{name}" for name in pods}
        assert controller._retries == []

    def _check_reserved(self, pod: Any, told: dict[str, str], claims: dict[str, Any]) -> None:
        """Check that a pod on a node has its allocated claims, once all of them exist."""
        names = [
            each.get("resourceClaimName") or told.get(each["name"], "")
            for each in pod["spec"].get("resourceClaims", ())
        ]
        if not {*names} - {"shared"} <= {*claims}:
            return
        for claim in (claims[name] for name in names if name in claims):
            if "allocation" in claim["status"] and "deletionTimestamp" not in claim["metadata"]:
                reserved = {each["uid"] for each in claim["status"].get("reservedFor", ())}
                assert pod["metadata"]["uid"] in reserved


def _may_run(pod: Any) -> bool:
    unbound = "nodeName" not in pod["spec"]
    return pod["status"]["phase"] not in FINAL and not (unbound and "deletionTimestamp" in pod["metadata"])


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(4, 40))])
def test_at_rest_every_pod_has_its_claims_once_and_no_claim_serves_a_pod_that_ended(seed: int) -> None:
    history = History(seed)
    for _ in range(4):
        for _ in range(25):
            history.step()
        history.world.settle()
        history.check()
        history.check_books()
