"""The batch scheduler's settings: a section of the configuration, or Volcano's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scheduler.config.load import ConfigurationSource, load_text, to_dict
from agent_scheduler.config.schema import Configuration
from apimachinery.document import text_of
from tests.support.command_line import HEADER, problem, refusal, run_arguments

from .test_reload import World

#: As Volcano's chart ships it.
SHIPPED = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


def one(plugin: str, more: str) -> str:
    """A file with a plugin of which more is said."""
    return f"tiers:\n- plugins:\n  - name: {plugin}\n    {more}\n"


def load_files(
    folder: Path, sessions: str, *flags: str, config: str = HEADER, warnings: list[str] | None = None
) -> Configuration:
    (folder / "volcano-scheduler.conf").write_text(sessions)
    (folder / "config.yaml").write_text(config)
    words = ["--config", f"{folder}/config.yaml", "--scheduler-conf", f"{folder}/volcano-scheduler.conf"]
    told: list[str] = [] if warnings is None else warnings
    return ConfigurationSource(run_arguments(*words, *flags), environ={}).load(warn=told.append)


def test_the_section_alone_has_the_defaults_of_volcano() -> None:
    assert load_text(HEADER).batch is None
    batch = load_text(HEADER + "batch: {}\n").batch
    assert batch is not None
    assert (batch.scheduler_name, batch.schedule_period, batch.default_queue) == ("volcano", 1.0, "default")
    assert batch.sessions.actions == ("enqueue", "allocate", "backfill")
    assert [[plugin.name for plugin in tier.plugins] for tier in batch.tiers] == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder"],
    ]


def test_the_file_that_volcano_ships_is_read_as_it_is(tmp_path: Path) -> None:
    warnings: list[str] = []
    batch = load_files(tmp_path, SHIPPED, "--schedule-period", "500ms", warnings=warnings).batch
    assert batch is not None
    assert batch.schedule_period == 0.5
    assert [plugin.name for tier in batch.tiers for plugin in tier.plugins][-1] == "binpack"
    gang = batch.sessions.option("gang")
    assert gang is not None and not gang.enabled("enablePreemptable") and gang.enabled("enableJobReady")
    assert warnings == []


def test_what_was_loaded_can_be_loaded_again(tmp_path: Path) -> None:
    made = load_files(tmp_path, SHIPPED)
    assert load_text(text_of(to_dict(made))) == made


MISTAKES = {
    "actions: allocate, alocate\n": ":1: actions: found 'alocate'; did you mean allocate?",
    "actions: allocate, shuffle\n": ":1: actions: shuffle is not supported: running pods",
    "actions: allocate, allocate\n": ":1: actions: found 'allocate' a second time",
    "tiers:\n- plugins:\n  - name: tdm\n": ":3: tiers[0].plugins[0].name: tdm is not supported",
    "tiers:\n- plugins:\n  - name: gangs\n": "found 'gangs'; did you mean gang?",
    one("gang", "enableJobRedy: true"): (
        ":4: tiers[0].plugins[0].enableJobRedy: unknown key; did you mean enableJobReady?"
    ),
    one("gang", "enableJobReady: 1"): ("tiers[0].plugins[0].enableJobReady: found the number 1; allowed: true, false"),
    one("overcommit", "arguments: {overcommit-factor: 0.5}"): (
        "arguments.overcommit-factor: found the number 0.5; allowed: a number from 1 to 1000"
    ),
    one("binpack", "arguments: {binpack.weight: heavy}"): ("binpack.weight: found 'heavy'; allowed: a whole number"),
    one("nodeorder", "arguments: {leastrequest.weight: 1}"): (
        "leastrequest.weight: unknown key; did you mean leastrequested.weight?"
    ),
    "tiers:\n- plugins: [{name: gang}]\n- plugins: [{name: gang}]\n": (
        "tiers[1].plugins[0].name: found 'gang' a second time"
    ),
    "tiers:\n- plugins: [{name: proportion}, {name: capacity}]\n": (
        "tiers: has proportion and capacity, which divide the cluster among queues by different rules"
    ),
    one("drf", "enableHierarchy: true"): "enableHierarchy: hierarchical drf is not supported",
    "configurations:\n- name: alocate\n": "configurations[0].name: found 'alocate'; did you mean allocate?",
    "tiers: {}\n": "tiers: found an object; allowed: a list",
    "[]\n": "found a list; allowed: an object with actions, tiers, configurations",
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.items())
def test_what_cannot_be_honoured_is_refused_at_its_place(tmp_path: Path, text: str, said: str) -> None:
    told = problem(load_files, tmp_path, text)
    assert said in told and told.startswith(str(tmp_path / "volcano-scheduler.conf"))


def test_the_section_is_checked_as_the_file_is_and_has_a_name_of_its_own() -> None:
    said = refusal("batch: {tiers: [{plugins: [{name: tdm}]}]}\n")
    assert said.startswith("f.yaml:3: batch.tiers[0].plugins[0].name: tdm is not supported")
    said = refusal("batch: {schedulerName: agent-scheduler}\n")
    assert "batch.schedulerName: found 'agent-scheduler', which profiles[0]" in said


def test_a_setting_that_both_the_section_and_the_file_give_is_refused(tmp_path: Path) -> None:
    told = problem(load_files, tmp_path, SHIPPED, config=HEADER + "batch: {actions: allocate}\n")
    assert "batch.actions: is set here and in the file of --scheduler-conf" in told


def test_a_missing_file_is_told_by_its_flag() -> None:
    source = ConfigurationSource(run_arguments("--scheduler-conf", "/nowhere"), environ={})
    assert "--scheduler-conf /nowhere: No such file" in problem(source.load)


def test_what_the_sessions_go_without_is_warned_of(tmp_path: Path) -> None:
    warnings: list[str] = []
    load_files(tmp_path, "actions: backfill\ntiers:\n- plugins: [{name: priority}]\n", warnings=warnings)
    assert len(warnings) == 4
    assert "has no allocate" in warnings[0]


def test_a_change_of_the_file_of_sessions_takes_effect(tmp_path: Path) -> None:
    load_files(tmp_path, SHIPPED)
    file = tmp_path / "volcano-scheduler.conf"
    world = World(file, ConfigurationSource(run_arguments("--scheduler-conf", str(file)), environ={}))
    world.reloader.look()
    file.write_text(SHIPPED.replace(", backfill", ", backfill, preempt"))
    world.settle()
    (_, changed) = world.in_effect
    assert changed.batch is not None
    assert changed.batch.sessions.actions == ("enqueue", "allocate", "backfill", "preempt")
