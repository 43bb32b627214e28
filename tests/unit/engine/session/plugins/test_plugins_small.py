"""priority, conformance, drf, overcommit, sla, resourcequota and pdb, each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.session import plugins
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.engine.session.plugins.conformance import conformance
from agent_scheduler.engine.session.plugins.drf import drf
from agent_scheduler.engine.session.plugins.gang import gang
from agent_scheduler.engine.session.plugins.priority import priority
from agent_scheduler.engine.session.registry import REGISTRY
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.statement import Statement
from agent_scheduler.objects.batch import QUOTA_PARTS
from tests.support.engine import covering
from tests.unit.engine.session.scene import Part, conf, has, opened, runs, sized, status_of, tasks_of, waits

OPTION = PluginOption("any")
PRIORITIES = ({"priority": 1}, {"priority": 5})


def test_priority_lets_jobs_of_lower_priority_be_evicted_and_tasks_of_its_own() -> None:
    scene = sized(4)
    scene.more["priorities"] = {"low": 1, "high": 2}
    low = has("low", {"priority": 100}, priorityClassName="low")
    session = opened(scene.holding(low, has("high", *PRIORITIES, priorityClassName="high")).session())
    (other,), (lower, mine) = tasks_of(session, "low"), tasks_of(session, "high")
    assert priority(session, OPTION)["preemptable"](mine, [other, lower, mine]) == [other, lower]


def test_conformance_spares_what_the_cluster_depends_on() -> None:
    session = opened(sized(4).holding(has("g", {"priority": 2_000_000_000}, {"priority": 1_999_999_999})).session())
    critical, plain = tasks_of(session, "g")
    hooks: Any = conformance(session, OPTION)
    assert hooks["reclaimable"](plain, [critical, plain]) == [plain]
    plain.pod = replace(plain.pod, namespace="kube-system")
    assert hooks["reclaimable"](plain, [critical, plain]) == []


def test_gang_spares_what_a_job_needs() -> None:
    session = opened(sized(4).holding(runs("g", *["n0"] * 3, minMember=2)).session())
    tasks = tasks_of(session, "g")
    assert gang(session, OPTION)["preemptable"](tasks[0], tasks) == tasks[:1]


def test_a_dominant_share_follows_what_is_placed_and_taken_back() -> None:
    session = opened(sized(4, pods="10").holding(waits("g", 2)).session(conf("gang", "drf")))
    job, hooks = session.jobs["default/g"], drf(session, OPTION)
    session.allocated, session.deallocated = (hooks["allocated"],), (hooks["deallocated"],)
    assert hooks["job_order"](job) == 0
    statement = Statement(session)
    for number, task in enumerate(tasks_of(session, "g"), start=1):
        statement.allocate(task, 0, session.nodes.view(task))
        assert hooks["job_order"](job) == number / 4
    statement.discard()
    assert hooks["job_order"](job) == 0


def test_those_may_go_without_whom_a_job_still_has_the_greater_share() -> None:
    scene = sized(8).holding(runs("rich", *["n0"] * 4), runs("poor", "n0"), has("waits", {}, phase="Running"))
    session = opened(scene.session(conf("drf")))
    tasks, (waiting,) = [*tasks_of(session, "rich"), *tasks_of(session, "poor")], tasks_of(session, "waits")
    hooks = drf(session, OPTION)
    victims = [task.pod.name for task in hooks["preemptable"](waiting, tasks)]
    assert victims == ["rich-0", "rich-1", "rich-2"], "with the third both would have as much"
    hooks["allocated"](waiting)
    assert [task.pod.name for task in hooks["preemptable"](waiting, tasks)] == ["rich-0", "rich-1"]


def test_pods_count_in_a_dominant_share() -> None:
    session, _ = sized(100, pods="2").holding(runs("g", "n0")).run(conf("gang", "drf"))
    assert session.shares == {"default/g": 0.5}


@pytest.mark.parametrize(("factor", "phase"), [("1.0", "Pending"), ("2.0", "Inqueue"), ("0.5", "Pending")])
def test_overcommit_lets_in_what_the_cluster_has_room_for_times_a_factor(factor: str, phase: str) -> None:
    scene = sized(2).holding(runs("runs", "n0"), has("g", minResources={"cpu": "2"}))
    _, result = scene.run(conf("gang", PluginOption("overcommit", {"overcommit-factor": factor})))
    assert status_of(result, "g").phase == phase
    said = [each.message for each in result.events if each.type == "Normal" and each.reason != "Scheduled"]
    assert said == (["resource in cluster is overused: overused cpu"] if phase == "Pending" else [])


@pytest.mark.parametrize("earlier", ["Pending", "Inqueue"])
def test_overcommit_counts_what_was_let_in_before(earlier: str) -> None:
    """By 1.2 of 5 there is room for 6, of which two groups take 4, earlier or in the same session."""
    scene = sized(5)
    names = ("first", "second", "third", "fourth")
    for name, cpu in zip(names, ("2", "2", "3", "2"), strict=True):
        phase = earlier if name in names[:2] else "Pending"
        scene.group(name, phase=phase, minResources={"cpu": cpu})
    _, result = scene.run(conf("gang", "overcommit"))
    phases = [status_of(result, name).phase for name in names]
    assert phases == ["Inqueue", "Inqueue", "Pending", "Inqueue"]


SLA = PluginOption("sla", {"sla-waiting-time": "1m"})
NOW = "2026-01-01T00:10:00Z"


def test_a_job_that_waited_too_long_is_let_in_at_once() -> None:
    created = {"late": "2026-01-01T00:08:59Z", "early": "2026-01-01T00:09:01Z"}
    scene = sized(1).holding(*(has(name, minResources={"cpu": "9"}, created=at) for name, at in created.items()))
    # A vote of an earlier tier keeps the later from rejecting.
    tiers = ((PluginOption("gang"), SLA), (PluginOption("overcommit"),))
    _, result = scene.run(SessionConf(tiers=tiers), now=NOW)
    assert [status_of(result, name).phase for name in ("late", "early")] == ["Inqueue", "Pending"]


@pytest.mark.parametrize(
    ("created", "claims", "turns"), [("2026-01-01T00:08:59Z", True, 30), ("2026-01-01T00:09:01Z", False, 1)]
)
def test_a_gang_that_waited_too_long_keeps_what_it_finds_though_that_is_too_little(
    created: str, claims: bool, turns: int
) -> None:
    """And the next moment is that of the one that waits and has not yet."""
    scene = sized(1).holding(waits("late", 2, created=created), waits("next", created="2026-01-01T00:09:30Z"))
    rest = tuple(PluginOption(name) for name in ("gang", "predicates", "nodeorder"))
    session, result = scene.run(SessionConf(tiers=((SLA,), rest)), now=NOW)
    assert result.turns_at == session.moment + turns
    assert session.jobs["default/late"].count(TaskStatus.ALLOCATED) == int(claims)
    assert session.jobs["default/next"].ready == int(not claims)


def test_a_job_may_have_a_time_of_its_own() -> None:
    scene = sized(4)
    scene.group("own", annotations={"sla-waiting-time": "5s"}, created="2026-01-01T00:09:59Z")
    scene.group("other", created="2026-01-01T00:09:58Z")
    scene.group("unread", annotations={"volcano.sh/sla-waiting-time": "soon"}, created="2026-01-01T00:09:57Z")
    session = opened(scene.session(conf("gang", SLA), now=NOW))
    jobs = sorted(session.jobs.values(), key=session.tiers.job_key)
    assert [job.name for job in jobs] == ["own", "unread", "other"]


def test_a_quota_keeps_groups_out_and_counts_those_that_were_let_in() -> None:
    scene = sized(4)
    scene.quota({"requests.cpu": "100"}, {"requests.cpu": "x"})
    scene.quota({"requests.cpu": "6", "count/jobs": "1"}, {"requests.cpu": "2"})
    for name in ("first", "second", "third"):
        scene.group(name, minResources={"requests.cpu": "2", "memory": "1Ti"})
    scene.group("free")
    _, result = scene.run(conf("gang", "resourcequota"))
    phases = {name: status_of(result, name).phase for name in ("first", "second", "third", "free")}
    assert phases == {"first": "Inqueue", "second": "Inqueue", "third": "Pending", "free": "Inqueue"}
    parts = ("requested: requests.cpu=2", "used: requests.cpu=2", "promised: requests.cpu=4", "limited: requests.cpu=6")
    assert f"resource quota insufficient, {', '.join(parts)}" in [event.message for event in result.events]


TWO = {"minMember": 2, "minResources": {"cpu": "2"}}
PROMISED = has("promised", {}, {"phase": "Succeeded"}, minMember=3, minResources={"cpu": "3"}, phase="Inqueue")


@pytest.mark.parametrize(
    ("parts", "used", "phase"),
    [
        # Of two members, so many are there already, and in what is used.
        ([has("g", {}, {}, **TWO)], 4, "Inqueue"),
        ([has("g", {}, **TWO)], 3, "Inqueue"),
        ([has("g", {}, **TWO)], 4, "Pending"),
        ([has("g", {"phase": "Failed"}, {"deleting": True}, **TWO)], 3, "Pending"),
        ([has("g", {}, {"phase": "Succeeded"}, **TWO)], 4, "Inqueue"),
        # The third member of a group that was let in is still to come.
        ([PROMISED, has("g", **TWO)], 1, "Inqueue"),
        ([PROMISED, has("g", **TWO)], 2, "Pending"),
    ],
)
def test_a_quota_counts_each_pod_once(parts: list[Part], used: int, phase: str) -> None:
    scene = sized(4)
    scene.quota({"requests.cpu": "4"}, {"requests.cpu": str(used)})
    _, result = scene.holding(*parts).run(conf("gang", "resourcequota"))
    assert status_of(result, "g").phase == phase


def test_a_plugin_that_asks_for_the_time_says_when_it_would_answer_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of the time is for what is written, and nothing is decided by it."""
    monkeypatch.setattr(Session, "moment", property(lambda session: asked.append(session) or 0.0))
    timely = set()
    for name in REGISTRY.plugins:
        asked: list[Session] = []
        session, _ = sized(1).holding(waits("g", 2), has("h", minResources={"cpu": "9"})).run(conf(name))
        assert not asked or session.tiers.every("turns_at"), name
        timely |= {name} if asked else set()
    assert timely == {"sla"}
    texts = {each.name: each.read_text() for each in Path(plugins.__file__).parent.glob("*.py")}
    assert {name for name, text in texts.items() if "session.now" in text} == {"gang.py"}


ENDING = '[{"scopes": ["Terminating"], "resources": {"pods": "1"}}]'
PODS, ASKING = {"minResources": {"pods": "1"}}, {"minResources": {"pods": "1", "requests.memory": "1Gi"}}


@pytest.mark.parametrize(
    ("scope", "group", "counted"),
    [
        # Pods that are still to come are as those that are there, or as the group says.
        ("Terminating", has("g", {"activeDeadlineSeconds": 9}, minMember=2, minResources={"pods": "2"}), True),
        ("Terminating", has("g", {}, minMember=2, minResources={"pods": "2"}), False),
        ("Terminating", has("g", annotations={QUOTA_PARTS: ENDING}, **PODS), True),
        ("Terminating", has("g", **PODS), False),
        ("BestEffort", has("g", **PODS), True),
        ("BestEffort", has("g", **ASKING), False),
        ("PriorityClass", has("g", priorityClassName="high", **PODS), True),
        ("PriorityClass", has("g", **PODS), False),
    ],
)
def test_a_quota_is_asked_for_pods_of_its_scopes(scope: str, group: Part, counted: bool) -> None:
    scene = sized(4)
    scene.quota({"pods": "1"}, {"pods": "1"}, scopes=[scope])
    _, result = scene.holding(group).run(conf("gang", "resourcequota"))
    assert status_of(result, "g").phase == ("Pending" if counted else "Inqueue")


@pytest.mark.parametrize(("listed", "hard"), [("memory", "requests.memory"), ("requests.memory", "memory")])
def test_a_quota_has_two_names_for_a_request(listed: str, hard: str) -> None:
    scene = sized(4)
    scene.quota({hard: "1Gi"}, {hard: "0"})
    session, _ = scene.holding(has("g", minResources={listed: "2Gi"})).run(conf("gang", "resourcequota"))
    told = f"resource quota insufficient, requested: {hard}=2Gi, used: {hard}=0, limited: {hard}=1Gi"
    assert session.jobs["default/g"].quota_refusal == told


def test_a_job_whose_tasks_all_have_room_does_not_starve() -> None:
    session, _ = sized(1).holding(waits("g", 2, minMember=1)).run()
    job = session.jobs["default/g"]
    assert job.count(TaskStatus.PENDING) == 1
    assert priority(session, OPTION)["job_starving"](job) and not gang(session, OPTION)["job_starving"](job)


@pytest.mark.parametrize(("allowed", "evicted"), [(2, 2), (1, 0), (0, 0)])
def test_what_went_elsewhere_counts_in_a_budget(allowed: int, evicted: int) -> None:
    members = ({"node": name, "labels": {"app": "x"}} for name in ("n0", "n1", "n2"))
    scene = sized(1, 1, 1).holding(has("low", *members, priorityClassName="low", phase="Running"))
    scene.gang("high", 2, priorityClassName="high")
    scene.more["pdbs"] = pdbs = PDBs()
    pdbs.set(covering("x", allowed))
    scene.more["priorities"] = {"low": 1, "high": 2}
    plugins = ("priority", "gang", "pdb", "predicates", "nodeorder")
    session, _ = scene.run(conf(*plugins, actions="enqueue allocate preempt"))
    assert len(session.evicted) == evicted
