"""Validation of the status of a claim, and of a pod that has one for its extended resources."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import (
    CLAIMS,
    DEFAULT,
    MERGE,
    PODS,
    STRATEGIC,
    TABLE,
    TEMPLATES,
    ClaimsWorld,
    cases,
    container,
    named,
)

SHARE = "aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa"
DEVICE = {"driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
EXTENDED = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}


@pytest.fixture
def world() -> ClaimsWorld:
    world = ClaimsWorld()
    world.add_claim("c")
    world.add_pod(gpu="claim/c")
    return world


def wrong(world: ClaimsWorld, status: Any, path: str = f"{CLAIMS}/c/status") -> list[str]:
    """Return the fields for which a write of this status is refused."""
    return world.wrong("PATCH", path, {"status": status}, kind=MERGE)


def allocation(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": [{"request": "r", **each} for each in results], **more}}}


def test_an_allocation_stays_as_it_is_until_it_is_cleared(world: ClaimsWorld) -> None:
    assert wrong(world, allocation(DEVICE)) == []
    assert wrong(world, allocation({**DEVICE, "device": "gpu-1"})) == ["status.allocation"]
    assert wrong(world, {"allocation": None}) == []
    assert wrong(world, allocation({**DEVICE, "device": "gpu-1"})) == []


def test_reservations_need_an_allocation_and_go_before_it(world: ClaimsWorld) -> None:
    reserved = world.consumers("p")
    assert wrong(world, {"reservedFor": reserved}) == ["status.reservedFor"]
    assert wrong(world, {**allocation(DEVICE), "reservedFor": reserved}) == []
    assert wrong(world, {"allocation": None}) == ["status.reservedFor"]
    assert wrong(world, {"allocation": None, "reservedFor": None}) == []


def test_a_claim_is_reserved_for_at_most_256_and_for_each_once(world: ClaimsWorld) -> None:
    assert wrong(world, allocation(DEVICE)) == []
    pods = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(257)]
    assert wrong(world, {"reservedFor": pods}) == ["status.reservedFor"]
    assert wrong(world, {"reservedFor": [pods[0], pods[0]]}) == ["status.reservedFor[1]"]
    assert wrong(world, {"reservedFor": pods[:256]}) == []


def test_reservations_of_two_writers_are_merged_by_uid(world: ClaimsWorld) -> None:
    assert wrong(world, allocation(DEVICE)) == []
    for number in range(2):
        reserved = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"}]
        world.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": reserved}}, kind=STRATEGIC)
    assert sorted(world.reserved("c")) == ["p0", "p1"]
    gone = {"status": {"reservedFor": [{"$patch": "delete", "uid": "u0"}]}}
    world.patch(f"{CLAIMS}/c/status", gone, kind=STRATEGIC)
    assert world.reserved("c") == ["p1"]


def test_a_claim_that_is_being_deleted_takes_no_new_reservations(world: ClaimsWorld) -> None:
    world.controllers = []
    world.allocate("c")
    world.delete(f"{CLAIMS}/c")
    assert wrong(world, {"reservedFor": world.consumers("p")}) == ["status.reservedFor"]


@cases("""
    result | field
    {request: other} | request
    {pool: ''} | pool
    {pool: a//b} | pool
    {device: Not_A_Label} | device
    {driver: ''} | driver
    {shareID: one} | shareID
    """)
def test_a_result_names_a_request_and_a_device(world: ClaimsWorld, result: dict[str, Any], field: str) -> None:
    at = f"status.allocation.devices.results[0].{field}"
    assert {*wrong(world, allocation({**DEVICE, **result}))} == {at}
    assert wrong(world, allocation({**DEVICE, "pool": "a/b", "shareID": SHARE})) == []


@cases("""
    config | fields
    {source: FromClass} | []
    {} | [source]
    {source: FromElsewhere} | [source]
    {source: FromClaim, requests: [other]} | ['requests[0]']
    {source: FromClaim, opaque: null} | [opaque]
    """)
def test_a_configuration_says_where_it_is_from_and_what_it_is_for(
    world: ClaimsWorld, config: dict[str, Any], fields: list[str]
) -> None:
    whole = {"opaque": {"driver": "d.example.com", "parameters": {"a": 1}}, **config}
    at = "status.allocation.devices.config[0]"
    assert wrong(world, allocation(DEVICE, config=[whole])) == [f"{at}.{field}" for field in fields]


def test_drivers_report_on_allocated_devices_once_and_their_reports_go_with_these(world: ClaimsWorld) -> None:
    other = {**DEVICE, "device": "gpu-1"}
    assert wrong(world, {"devices": [DEVICE]}) == ["status.devices[0]"]
    assert wrong(world, allocation(DEVICE, other)) == []
    assert wrong(world, {"devices": [DEVICE, DEVICE]}) == ["status.devices[1]"]
    assert wrong(world, {"devices": [{**DEVICE, "shareID": SHARE}]}) == ["status.devices[0]"]
    assert wrong(world, {"devices": [DEVICE, other]}) == []
    assert wrong(world, {"allocation": None}) == []
    assert world.claims()["c"]["status"] == {}


def test_admin_access_is_for_namespaces_that_are_labelled_for_it(world: ClaimsWorld) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}]
    spec = {"devices": {"requests": requests}}
    claim, template = (named("a", spec=spec), named("a", spec={"spec": spec}))
    at = "devices.requests[0].exactly.adminAccess"
    for path, body, field in ((CLAIMS, claim, f"spec.{at}"), (TEMPLATES, template, f"spec.spec.{at}")):
        assert world.wrong("POST", path, body) == [field]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    world.patch(DEFAULT, {"metadata": {"labels": labels}})
    world.post(CLAIMS, claim)
    world.post(TEMPLATES, template)


MAPPING = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}


def wrong_mappings(world: ClaimsWorld, status: dict[str, Any]) -> list[str]:
    """Return the refused fields of a claim's status for extended resources, in a pod that is created first."""
    world.pod("extended", spec={"containers": [container(resources=EXTENDED)]})
    found = wrong(world, {"extendedResourceClaimStatus": status}, f"{PODS}/extended/status")
    return [field.removeprefix("status.extendedResourceClaimStatus.") for field in found]


@cases("""
    status | fields
    {} | []
    {resourceClaimName: ''} | [resourceClaimName]
    {resourceClaimName: Not a name} | [resourceClaimName]
    {requestMappings: []} | [requestMappings]
    {containerName: other} | ['requestMappings[0].containerName']
    {resourceName: example.com/other} | ['requestMappings[0].resourceName']
    {requestName: Not_a_label} | ['requestMappings[0].requestName']
    """)
def test_a_claim_for_extended_resources_answers_what_containers_ask_for(
    world: ClaimsWorld, status: dict[str, Any], fields: list[str]
) -> None:
    mapping = {**MAPPING, **{field: value for field, value in status.items() if field in MAPPING}}
    whole = {"resourceClaimName": "x", "requestMappings": [mapping]}
    whole |= {field: value for field, value in status.items() if field in whole}
    assert wrong_mappings(world, whole) == fields


def test_what_a_container_asks_for_is_answered_once(world: ClaimsWorld) -> None:
    twice = {"resourceClaimName": "x", "requestMappings": [MAPPING, MAPPING]}
    assert wrong_mappings(world, twice) == ["requestMappings[1]"]


def test_a_request_has_at_most_eight_choices(world: ClaimsWorld) -> None:
    choices = [{"name": f"c{number}", "deviceClassName": "gpu"} for number in range(9)]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": choices}]}}
    assert world.wrong("POST", CLAIMS, named("many", spec=spec)) == ["spec.devices.requests[0].firstAvailable"]
    del choices[8]
    world.post(CLAIMS, named("many", spec=spec))


def test_kubectl_gets_the_state_of_a_claim(world: ClaimsWorld) -> None:
    steps = [
        lambda: None,
        lambda: world.allocate("c"),
        lambda: world.reserve("c", "p"),
        lambda: world.delete(f"{CLAIMS}/c"),
    ]
    states = []
    for step in steps:
        step()
        states.append(world.get(CLAIMS, accept=TABLE)["rows"][0]["cells"][1])
    assert states == ["pending", "allocated", "allocated,reserved", "deleted,allocated,reserved"]
