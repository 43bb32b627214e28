"""Which quotas count a pod, by their scopes and selectors."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.quotause import ScopeFacts, quota_parts
from agent_scheduler.objects.batch import ResourceQuotaSpec
from tests.support.engine import pod_json, read_pod

#: What a pod says; scopes of the quota, or how it selects classes; and whether the quota counts the pod.
SCOPES = """
{activeDeadlineSeconds: 9} | [Terminating] | true
{} | [Terminating] | false
{activeDeadlineSeconds: 9} | [NotTerminating] | false
{} | [NotTerminating] | true
{} | [BestEffort] | false
{cpu: ""} | [BestEffort] | true
{activeDeadlineSeconds: 9} | [NotBestEffort, Terminating] | true
{} | [NotBestEffort, Terminating] | false
{priorityClassName: high} | [PriorityClass] | true
{} | [PriorityClass] | false
{priorityClassName: high} | {operator: In, values: [high, low]} | true
{priorityClassName: high} | {operator: In, values: [low]} | false
{} | {operator: NotIn, values: [low]} | true
{priorityClassName: high} | {operator: NotIn, values: [high]} | false
{priorityClassName: high} | {operator: Exists} | true
{priorityClassName: high} | {operator: DoesNotExist} | false
{} | {operator: DoesNotExist} | true
{affinity: {podAffinity: {%s: [{namespaceSelector: {}}]}}} | [CrossNamespacePodAffinity] | true
{affinity: {podAffinity: {%s: [{}]}}} | [CrossNamespacePodAffinity] | false
{priorityClassName: high} | [VolumeAttributesClass] | false
""".replace("%s", "requiredDuringSchedulingIgnoredDuringExecution")


@pytest.mark.parametrize("row", SCOPES.strip().splitlines())
def test_a_quota_counts_the_pods_of_its_scopes(row: str) -> None:
    """And so it does when what it asks was written down in between."""
    spec, told, counted = map(yaml.safe_load, row.split("|"))
    by_class = {} if isinstance(told, list) else {"matchExpressions": [{"scopeName": "PriorityClass", **told}]}
    quota = msgspec.convert({"scopeSelector": by_class} if by_class else {"scopes": told}, ResourceQuotaSpec)
    classes = PodClasses()
    classes.quotas_for = frozenset(("volcano",))
    use = read_pod(
        pod_json("p", scheduler="volcano", requests={} if "cpu" in spec else {"cpu": "1"}, **spec), classes
    ).quota
    assert use is not None
    part = {"scopes": use.scoped.scopes, "priorityClassName": use.scoped.priority_class}
    (again,) = quota_parts(json.dumps([part]))
    assert [each.scoped.is_counted_by(quota) for each in (use, again)] == [counted, counted]
    assert read_pod(pod_json("p", scheduler="other", **spec), classes).quota is None


@pytest.mark.parametrize("text", ["", "no list", '[{"scopes": 7}]'])
def test_what_cannot_be_read_says_nothing(text: str) -> None:
    assert quota_parts(text) == ()


def test_of_a_class_that_is_not_known_no_quota_is_asked() -> None:
    for operator in ("In", "NotIn", "Exists", "DoesNotExist"):
        expressions = [{"scopeName": "PriorityClass", "operator": operator, "values": ["a"]}]
        spec = {"scopeSelector": {"matchExpressions": expressions}}
        assert not ScopeFacts(priority_class=None).is_counted_by(msgspec.convert(spec, ResourceQuotaSpec))
