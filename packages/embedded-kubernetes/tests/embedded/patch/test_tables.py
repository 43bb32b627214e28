"""The rows of `kubectl get`."""

from __future__ import annotations

from typing import Any

from embedded_kubernetes import tables
from embedded_kubernetes.printing import human_duration
from embedded_kubernetes.resource import Resource

from ..support import NOW, cases, named, pod
from .kinds import PODS, RESOURCES, widget, widgets


def _cells(resource: Resource, obj: dict[str, Any], now: str = NOW) -> dict[str, Any]:
    table = tables.table(resource, [obj], meta={}, include="None", now=now)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def _pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    spec = {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "nodeName": "n"}
    return {**pod("a", spec=spec, **{"creationTimestamp": NOW, **metadata}), "status": status}


@cases("""
    status | metadata | word
    {phase: Pending} | {} | Pending
    {phase: Failed, reason: Evicted} | {} | Evicted
    {phase: Running} | {deletionTimestamp: '2026-01-01T00:00:00Z'} | Terminating
    {phase: Succeeded} | {deletionTimestamp: '2026-01-01T00:00:00Z'} | Succeeded
    {phase: Running, reason: NodeLost} | {deletionTimestamp: '2026-01-01T00:00:00Z'} | Unknown
    {conditions: [{type: PodScheduled, reason: SchedulingGated}]} | {} | SchedulingGated
    {initContainerStatuses: [{name: i, state: {waiting: {reason: PodInitializing}}}]} | {} | Init:0/2
    {initContainerStatuses: [{name: i, state: {waiting: {reason: ErrImagePull}}}]} | {} | Init:ErrImagePull
    {initContainerStatuses: [{name: i, state: {terminated: {exitCode: 2}}}]} | {} | Init:ExitCode:2
    {initContainerStatuses: [{name: i, state: {terminated: {exitCode: 2, signal: 9}}}]} | {} | Init:Signal:9
    {containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}}]} | {} | CrashLoopBackOff
    {containerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]} | {} | ExitCode:1
    {containerStatuses: [{name: c, state: {terminated: {reason: OOMKilled}}}]} | {} | OOMKilled
    {containerStatuses: [{name: c, state: {terminated: {reason: Completed}}}, {name: d, ready: true, state:
        {running: {}}}]} | {} | NotReady
    """)
def test_a_pods_status_is_one_word(status: dict[str, Any], metadata: dict[str, Any], word: str) -> None:
    assert _cells(PODS, _pod(status, **metadata))["Status"] == word


def test_a_pods_readiness_and_restarts_count_sidecars() -> None:
    terminated = {"terminated": {"finishedAt": "2026-01-01T00:00:10Z"}}
    status = {
        "phase": "Running",
        "podIPs": [{"ip": "10.0.0.1"}],
        "initContainerStatuses": [
            {"name": "i", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}},
            {"name": "s", "restartCount": 1, "started": True, "ready": True, "state": {"running": {}}},
        ],
        "containerStatuses": [
            {"name": "c", "restartCount": 2, "ready": True, "state": {"running": {}}, "lastState": terminated}
        ],
    }
    cells = _cells(PODS, _pod(status), now="2026-01-01T00:00:40Z")
    shown = [cells[name] for name in ("Ready", "Restarts", "IP", "Age")]
    assert shown == ["2/2", "3 (30s ago)", "10.0.0.1", "40s"]


def test_include_decides_what_a_row_carries() -> None:
    obj = _pod({"phase": "Pending"})
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    for include, carried in (("None", None), ("Object", obj), ("Metadata", partial)):
        table = tables.table(PODS, [obj], meta={}, include=include, now=NOW)
        assert table["rows"][0]["object"] == carried


@cases("""
    seconds | shown
    -2 | <invalid>
    -1 | 0s
    119 | 119s
    120 | 2m
    599 | 9m59s
    600 | 10m
    10800 | 3h
    11700 | 3h15m
    28800 | 8h
    172800 | 2d
    180000 | 2d2h
    691200 | 8d
    63072000 | 2y
    63158400 | 2y1d
    259200000 | 8y
    """)
def test_ages_are_shortened_as_kubectl_does(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_every_kinds_row_has_a_cell_a_column_even_of_a_bare_object() -> None:
    for resource in RESOURCES.values():
        table = tables.table(resource, [named("x", creationTimestamp=NOW)], meta={}, include="None", now=NOW)
        assert len(table["columnDefinitions"]) == len(table["rows"][0]["cells"]), resource.kind


def test_every_described_column_names_a_field_that_exists() -> None:
    for resource in RESOURCES.values():
        for column in tables.columns_of(resource):
            tables.documented(column.description)
            assert column.type in ("string", "integer", "boolean", "date")


def test_custom_columns_show_what_their_paths_find() -> None:
    columns = [
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
        {"name": "Parts", "type": "string", "jsonPath": ".spec.parts"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.color"},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Gone", "type": "date", "jsonPath": ".spec.color"},
    ]
    kind = widgets({"type": "object"}, additionalPrinterColumns=columns)
    obj = widget(spec={"color": "red", "size": 3, "on": True, "parts": [1]})
    obj["metadata"]["creationTimestamp"] = NOW
    shown = {"Color": "red", "Size": 3, "On": True, "Parts": "[1]", "Wrong": None}
    assert _cells(kind, obj) == {"Name": "w", **shown, "Born": "0s", "Gone": "<invalid>"}
    assert list(_cells(widgets({"type": "object"}), obj)) == ["Name", "Age"]
