"""The configuration file while the process runs: when it is read again, what is applied, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_scheduler.config.load import ConfigurationSource, load_text, to_dict
from agent_scheduler.config.reload import CHANGEABLE, LOOK_EVERY, Reloader, differences
from agent_scheduler.config.schema import Configuration
from tests.support.command_line import HEADER, run_arguments


class Stop(Exception):
    """The test has seen enough."""


@dataclass
class World:
    """A file, the reloader that looks at it, and what became of each change."""

    file: Path
    source: ConfigurationSource
    reloader: Reloader = field(init=False)
    in_effect: list[Configuration] = field(default_factory=list)
    changes: list[list[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failing: Exception | None = None
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[int], None] = lambda number: None

    def __post_init__(self) -> None:
        current = self.source.load()
        self.in_effect.append(current)
        self.reloader = Reloader(self.source, current, apply=self.apply, observer=self, sleep=self.sleep)

    def apply(self, configuration: Configuration) -> None:
        if self.failing is not None:
            raise self.failing
        self.in_effect.append(configuration)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause(len(self.pauses))

    def applied(self, configuration: Configuration, changed: list[str]) -> None:
        assert configuration is self.in_effect[-1]
        self.changes.append(changed)

    def refused(self, problem: str) -> None:
        self.problems.append(problem)

    def without_effect(self, warning: str) -> None:
        self.warnings.append(warning)

    def write(self, text: str) -> None:
        self.file.write_text(HEADER + text)

    def settle(self) -> None:
        self.reloader.look()
        self.reloader.look()

    def becomes(self, text: str) -> None:
        self.write(text)
        self.settle()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path)


def started(tmp_path: Path, *flags: str, text: str = "") -> World:
    file = tmp_path / "f.yaml"
    file.write_text(HEADER + text)
    return World(file, ConfigurationSource(run_arguments("--config", str(file), *flags), environ={}))


def test_a_change_takes_effect_once_it_was_seen_twice(world: World) -> None:
    world.write("candidateNodeCount: 7\n")
    world.reloader.look()
    assert world.changes == []
    world.reloader.look()
    assert world.changes == [["candidateNodeCount"]]
    assert world.in_effect[-1].candidate_node_count == 7
    for _ in range(3):
        world.settle()
    assert (len(world.changes), world.problems, len(world.in_effect)) == (1, [], 2)


def test_a_file_that_is_still_being_written_is_not_read(world: World) -> None:
    for count in range(2, 6):
        world.write(f"candidateNodeCount: {count}\n")
        world.reloader.look()
    assert world.changes == []
    world.reloader.look()
    assert world.in_effect[-1].candidate_node_count == 5


def test_a_change_that_is_taken_back_before_it_took_effect_is_none(world: World) -> None:
    world.write("candidateNodeCount: 7\n")
    world.reloader.look()
    world.becomes("")
    world.write("candidateNodeCount: 7\n")
    world.reloader.look()
    assert world.changes == []


def test_asked_for_a_change_takes_effect_at_once(world: World) -> None:
    world.write("candidateNodeCount: 7\n")
    world.reloader.now()
    assert world.changes == [["candidateNodeCount"]]
    world.settle()
    assert len(world.changes) == 1


def test_links_that_are_swapped_as_those_of_a_config_map_are_a_change(tmp_path: Path) -> None:
    for number, text in ((1, ""), (2, "candidateNodeCount: 9\n")):
        (tmp_path / f"data{number}").mkdir()
        (tmp_path / f"data{number}" / "f.yaml").write_text(HEADER + text)
    link = tmp_path / "..data"
    link.symlink_to("data1")
    (tmp_path / "f.yaml").symlink_to("..data/f.yaml")
    world = World(tmp_path / "f.yaml", ConfigurationSource(run_arguments("--config", str(tmp_path / "f.yaml"))))
    (tmp_path / "new").symlink_to("data2")
    os.replace(tmp_path / "new", link)
    world.settle()
    assert world.in_effect[-1].candidate_node_count == 9


def test_flags_lie_over_what_is_loaded_again(tmp_path: Path) -> None:
    world = started(tmp_path, "--kube-api-qps", "7")
    world.becomes("clientConnection: {qps: 3}\nmaxUrgentRetries: 1\n")
    assert world.changes == [["maxUrgentRetries"]]
    assert world.in_effect[-1].client_connection.qps == 7


def test_what_was_applied_is_what_the_next_change_is_compared_with(world: World) -> None:
    for count in (7, 8, 3):
        world.becomes(f"candidateNodeCount: {count}\n")
    assert world.changes == [["candidateNodeCount"]] * 3


def test_a_mistake_is_told_once_and_the_old_configuration_stays(world: World) -> None:
    world.write("candidateNodeCount: many\n")
    for _ in range(3):
        world.settle()
    assert world.problems == [
        f"{world.file}:3: candidateNodeCount: found 'many'; allowed: a whole number from 1 to 1024"
    ]
    assert len(world.in_effect) == 1
    world.reloader.now()
    assert len(world.problems) == 2


def test_after_a_mistake_the_old_content_is_a_change_again(world: World) -> None:
    world.becomes("candidateNodeCount: many\n")
    world.becomes("")
    assert world.changes == [[]]


def test_a_file_that_is_gone_is_refused_and_taken_when_it_is_back(world: World) -> None:
    world.file.unlink()
    world.settle()
    world.settle()
    assert world.problems == [f"--config {world.file}: No such file or directory"]
    world.becomes("candidateNodeCount: 4\n")
    assert world.changes == [["candidateNodeCount"]]


A, B = "profiles: [{schedulerName: a}]\n", "profiles: [{schedulerName: b}]\n"
OFF, ON = "leaderElection: {leaderElect: false}\n", "leaderElection: {leaderElect: true}\n"


@pytest.mark.parametrize(
    ("flag", "before", "after", "changes"),
    [
        ("--leader-elect=false", A, B, ["profiles"]),
        ("--port=0", "", "# a remark\ncandidateNodeCount: 3\n", []),
        # Its lease is called after the first profile.
        ("--leader-elect", A, B, "leaderElection.resourceName"),
        ("--port=0", OFF, ON, "leaderElection.leaderElect"),
        (
            "--log-level=info",
            "",
            f"workerCount: 4\ncandidateNodeCount: 5\nserving: {{port: 1}}\n{OFF}",
            "workerCount, leaderElection.leaderElect, serving.port",
        ),
    ],
)
def test_what_needs_a_restart_is_named_and_nothing_of_the_rest_is_applied(
    tmp_path: Path, flag: str, before: str, after: str, changes: list[str] | str
) -> None:
    world = started(tmp_path, flag, text=before)
    world.becomes(after)
    if isinstance(changes, str):
        assert world.problems == [f"{changes}: cannot change while the process runs; restart it"]
        assert (world.changes, len(world.in_effect)) == ([], 1)
    else:
        assert (world.changes, world.problems) == ([changes], [])


def test_what_is_refused_when_it_is_applied_is_not_in_effect(world: World) -> None:
    world.failing = KeyError("a plugin's")
    world.becomes("candidateNodeCount: 5\n")
    assert world.problems == ['KeyError: "a plugin\'s"']
    world.failing = None
    world.becomes("candidateNodeCount: 6\n")
    # Compared with what is in effect, not with what was refused.
    assert world.changes == [["candidateNodeCount"]]


def test_a_key_without_effect_is_told_again(world: World) -> None:
    world.becomes("parallelism: 3\n")
    assert [warning.partition(": ")[2] for warning in world.warnings] == [
        "parallelism: has no effect: a cycle evaluates all nodes together; see workerCount"
    ]


def test_every_setting_is_either_changeable_or_not() -> None:
    shown = to_dict(load_text(HEADER + "batch: {}\n"))
    for path in CHANGEABLE:
        value = shown
        for step in path.split("."):
            value = value[step]


def test_differences_are_paths() -> None:
    before = load_text(HEADER)
    after = load_text(HEADER + "events: {enabled: false}\nfeatureGates: {SchedulerPopFromBackoffQ: false}\n")
    assert differences(before, after) == ["events.enabled", "featureGates.SchedulerPopFromBackoffQ"]
    assert differences(before, before) == []


async def test_it_looks_every_two_seconds(world: World) -> None:
    def pause(number: int) -> None:
        if number == 2:
            world.write("candidateNodeCount: 8\n")
        if number == 5:
            raise Stop

    world.on_pause = pause
    with pytest.raises(Stop):
        await world.reloader.run()
    assert world.pauses == [LOOK_EVERY] * 5
    assert LOOK_EVERY == 2.0
    assert world.changes == [["candidateNodeCount"]]
