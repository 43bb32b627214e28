"""Files of faults, and the errors of invalid ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apimachinery.errors import ConfigurationError
from embedded.support import cases
from embedded_kubernetes import fault_plan
from embedded_kubernetes.command import main
from embedded_kubernetes.fault_plan import KINDS, WATCH_KINDS, plan_of, read_plan

from ..places import FAULTS


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        plan_of(text, source="f.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plan_is_read_from_yaml_and_from_json_alike(tmp_path: Path) -> None:
    rule = {
        "match": {"verbs": ["create"], "resource": "pods/binding", "namespace": "a*"},
        "every": 3,
        "fault": {"hang": {"commit": True, "lasts": "1m30s"}},
    }
    (tmp_path / "f.json").write_text(json.dumps({"seed": 4, "rules": [rule]}))
    (tmp_path / "f.yaml").write_text(
        "seed: 4\nrules:\n- match: {verbs: [create], resource: pods/binding, namespace: a*}\n  every: 3\n"
        "  fault: {hang: {commit: true, lasts: 1m30s}}\n"
    )
    plan = read_plan(tmp_path / "f.yaml")
    assert plan == read_plan(tmp_path / "f.json")
    assert plan.seed == 4
    assert plan.rules[0].fault.section == fault_plan.Hang(commit=True, lasts=90.0)
    assert plan.rules[0].fault.kind == "hang"


@cases(r"""
    text | message
    '' | 'f.yaml:1: found nothing (null); allowed: an object with rules, seed'
    'rules: []' | 'f.yaml:1: rules: is empty; allowed: one rule or more'
    "seed: 1\nrulez: []" | 'f.yaml:2: rulez: unknown key; did you mean rules? allowed: rules, seed'
    "seed: one\nrules: []" | "f.yaml:1: seed: found 'one'; allowed: a whole number"
    "rules:\n- fault: {drop: {}}\n  probability: 1.5" | 'f.yaml:3: rules[0].probability: found the number 1.5;
        allowed: a number from 0 to 1'
    "rules:\n- fault: {drop: {}}\n  every: 2\n  probability: .5" | 'f.yaml:3: rules[0].every: excludes
        probability; allowed: one of the two'
    "rules:\n- fault: {drop: {}}\n  count: 0" | 'f.yaml:3: rules[0].count: found the number 0; allowed: a whole
        number, 1 or more'
    "rules:\n- fault: {error: {status: 200}}" | 'f.yaml:2: rules[0].fault.error.status: found the number 200;
        allowed: a whole number from 400 to 599'
    "rules:\n- fault: {hang: {lasts: 5}}" | 'f.yaml:2: rules[0].fault.hang.lasts: found the number 5; allowed: a
        duration such as 500ms, 15s or 5m (did you mean 5s?)'
    "rules:\n- fault: {close: {}}" | 'f.yaml:2: rules[0].fault.close: has no position; allowed: exactly one
        of events and bytes'
    "rules:\n- fault: {stall: {events: 1, bytes: 1}}" | 'f.yaml:2: rules[0].fault.stall: has no position; allowed:
        exactly one of events and bytes'
    "rules:\n- fault: {delay: {}}" | 'f.yaml:2: rules[0].fault.delay: delays nothing; allowed: before, after or
        both, above 0s'
    "rules:\n- fault: {hold: {}}" | 'f.yaml:2: rules[0].fault.hold.back: holds nothing back; allowed: a duration
        above 0s'
    "rules:\n- match:\n    verbs: [bind]\n  fault: {drop: {}}" | "f.yaml:3: rules[0].match.verbs[0]: found 'bind';
        allowed: create, delete, deletecollection, get, list, patch, update, watch"
    "rules:\n- match:\n    verbs: []\n  fault: {drop: {}}" | 'f.yaml:3: rules[0].match.verbs: is empty, so that
        nothing would match; leave it out for all'
    "rules:\n- match:\n    verbs: [list]\n  fault: {loseDelete: {}}" | 'f.yaml:3: rules[0].match.verbs: has no verb that
        loseDelete applies to; allowed: watch among them'
    "rules:\n- match:\n    verbs: [watch]\n  fault: {cutBody: {}}" | 'f.yaml:3: rules[0].match.verbs: has no verb that
        cutBody applies to; allowed: create or delete or deletecollection or get or list or patch or update
        among them'
    "rules:\n- match:\n    methods: [POST]\n  fault: {stale: {versions: 1}}" | 'f.yaml:3: rules[0].match.methods:
        has no method that stale applies to; allowed: GET among them'
    """)
def test_what_is_wrong_is_told_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize("given", ["{}", "{drop: {}, lose: {}}"])
def test_a_rule_has_exactly_one_fault(given: str) -> None:
    message = refusal(f"rules:\n- fault: {given}")
    assert message.startswith("f.yaml:2: rules[0].fault: ")
    assert message.endswith(f"; allowed: exactly one of {', '.join(KINDS)}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.yaml", ": cannot be read: "),
        (".", ": cannot be read: "),
        ("f.yaml", ":2: rules[0].fault.dorp: unknown key; did you mean drop?"),
    ],
)
def test_a_file_that_holds_no_plan_ends_the_command_with_2_before_it_serves(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.yaml").write_text("rules:\n- fault: {dorp: {}}\n")
    assert main(["--port", "0", "--faults", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"embedded-kubernetes: {tmp_path / name}{message}")


def test_the_sample_and_the_page_show_plans_that_are_accepted() -> None:
    assert len(read_plan(FAULTS.with_suffix(".yaml")).rules) > 3
    page = FAULTS.read_text()
    blocks = page.split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        plan_of(block.split("```")[0])


def test_the_page_explains_every_kind_and_every_key() -> None:
    page = FAULTS.read_text()
    for kind in KINDS:
        assert f"| `{kind}" in page, kind
    for section in (fault_plan.Plan, fault_plan.FaultRule, fault_plan.Match):
        for key in section.__struct_encode_fields__:
            assert f"`{key}`" in page, key
    assert {"close", "hold", "loseDelete"} < set(WATCH_KINDS)
    assert not {"error", "stale", "hang"} & set(WATCH_KINDS)
