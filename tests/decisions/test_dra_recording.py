"""Other recordings of decisions about devices are read, and what nobody would know how to replay is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.decisions.devices.cases import VARIABLE, device_cases
from tests.decisions.devices.engine import DeviceEngine
from tests.decisions.form import Unknown


def line() -> dict[str, Any]:
    """A node with a device, and a pod that gets it."""
    return {
        "id": 7,
        "nodes": [{"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}],
        "deviceClasses": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [
            {
                "metadata": {"name": "s"},
                "spec": {
                    "driver": "d.example.com",
                    "nodeName": "n0",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "dev"}],
                },
            }
        ],
        "claims": [
            {
                "metadata": {"name": "c0"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}},
            }
        ],
        "allocatedBefore": [],
        "pending": {
            "metadata": {"name": "p0"},
            "spec": {
                "containers": [{"name": "c"}],
                "resourceClaims": [{"name": "mine", "resourceClaimName": "c0"}],
            },
        },
        "result": {
            "node": "n0",
            "allocations": {
                "c0": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "dev"}]
            },
        },
    }


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_a_recording_that_the_environment_names_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(written(tmp_path / "other.jsonl", line())))
    (case,) = device_cases()
    assert (case.id, case.node) == (7, "n0")
    assert DeviceEngine(case.cluster, case.claims).where(case.pending).nodes == ("n0",)


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("deviceTaintRules", [], "case.deviceTaintRules: unknown"),
        ("pending.spec.volumes", [], "case.pending.spec.volumes: unknown"),
        ("slices.0.spec.devices.0.mood", 1, "case.slices[0].spec.devices[0].mood: unknown"),
        (
            "slices.0.spec.devices.0.attributes",
            {"a": {"list": []}},
            "case.slices[0].spec.devices[0].attributes.a.list: unknown",
        ),
        (
            "claims.0.spec.devices.requests.0.exactly.allocationMode",
            "Some",
            "case.claims[0].spec.devices.requests[0].exactly.allocationMode: 'Some' is unknown",
        ),
        ("claims", {}, "case.claims: a list is expected"),
        ("pending.spec.resourceClaims.0.resourceClaimName", "c9", "['c9'] are no claims"),
    ],
)
def test_a_line_that_names_something_unknown_is_an_error_that_says_where(
    place: str, value: object, named: str, tmp_path: Path
) -> None:
    spoiled = line()
    at: Any = spoiled
    *path, last = place.split(".")
    for key in path:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    with pytest.raises(Unknown) as error:
        device_cases(written(tmp_path / "recording.jsonl", line(), spoiled))
    assert "recording.jsonl:2: " in str(error.value)
    assert named in str(error.value)


def test_a_file_that_is_cut_empty_or_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"id": 3, "nodes": [')
    with pytest.raises(Unknown, match=r"cut\.jsonl:1: "):
        device_cases(cut)
    with pytest.raises(Unknown, match="no case"):
        device_cases(written(tmp_path / "empty.jsonl"))
    incomplete = line()
    del incomplete["result"]
    with pytest.raises(Unknown, match="case: result missing"):
        device_cases(written(tmp_path / "incomplete.jsonl", incomplete))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.jsonl"))
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        device_cases()
