"""Rules of node groups."""

from __future__ import annotations

import pytest

from embedded.support import cases
from embedded_kubernetes.node_groups import RuleError, read_rules


def test_a_rule_describes_a_group() -> None:
    resources = "cpu=8, memory=32Gi,pods=50,nvidia.com/gpu=1"
    placing = "label:pool=gpu,taint:a=b:NoSchedule,taint:c:NoExecute"
    (group,) = read_rules([f"{resources},{placing},max=3,delay=0.5,idle=0"])
    assert group.name == "group-1"
    assert group.amounts == {"cpu": "8", "memory": "32Gi", "pods": "50", "nvidia.com/gpu": "1"}
    assert group.labels == {"pool": "gpu"}
    assert group.taints == ({"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"})
    assert (group.most, group.delay, group.idle) == (3, 0.5, 0.0)


def test_what_a_rule_does_not_say_has_a_default() -> None:
    first, second = read_rules(["cpu=1,memory=1Gi", "cpu=1,memory=1Gi,name=other"])
    assert (first.amounts["pods"], first.most, first.delay, first.idle) == ("110", 10, 5.0, 30.0)
    assert (first.name, second.name) == ("group-1", "other")


@cases(r"""
    rule | message
    '' | 'entry 1 \(\): allowed are cpu, memory, pods'
    cpu=8 | memory=QUANTITY is missing
    memory=8 | cpu=QUANTITY is missing
    cpu=8,memory=1Gi,size=3 | 'entry 3 \(size=3\): allowed are cpu, memory, pods.*max=N, delay=SECONDS'
    cpu=x,memory=1Gi | "entry 1 \\(cpu=x\\): invalid quantity 'x'"
    cpu=-1,memory=1Gi | 'entry 1 \(cpu=-1\): must be at least 0'
    cpu=8,cpu=9 | 'entry 2 \(cpu=9\): is given twice'
    cpu=8,memory=1Gi,max=0 | 'entry 3 \(max=0\): must be a whole number from 1 on'
    cpu=8,memory=1Gi,delay=-1 | 'entry 3 \(delay=-1\): must be a number of seconds, at least 0'
    cpu=8,memory=1Gi,idle=nan | 'entry 3 \(idle=nan\): must be a number of seconds'
    cpu=8,memory=1Gi,label:a b=c | "entry 3 \\(label:a b=c\\): 'a b': "
    cpu=8,memory=1Gi,taint:a=b:Never | entry 3 .*with an effect of NoSchedule, PreferNoSchedule, NoExecute
    cpu=8,memory=1Gi,name=A | "entry 3 \\(name=A\\): 'A': "
    cpu=8,memory=1Gi,a b/c=1 | "entry 3 \\(a b/c=1\\): 'a b/c': "
    """)
def test_a_rule_that_is_none_is_refused_by_its_place(rule: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_rules([rule])


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(RuleError, match="another group is named a"):
        read_rules(["cpu=1,memory=1Gi,name=a", "cpu=2,memory=1Gi,name=a"])
