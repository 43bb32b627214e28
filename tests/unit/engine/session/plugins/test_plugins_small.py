"""priority, conformance, drf, overcommit, sla, resourcequota and pdb, each by itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agent_scheduler.engine.preemption.pdbs import PDB, PDBs
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.engine.session.plugins.conformance import conformance
from agent_scheduler.engine.session.plugins.drf import drf
from agent_scheduler.engine.session.plugins.gang import gang
from agent_scheduler.engine.session.plugins.priority import priority
from agent_scheduler.engine.session.statement import Statement
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.objects.batch import ResourceQuotaStatus
from agent_scheduler.objects.wire import LabelSelector
from tests.support.engine import node
from tests.unit.engine.session.scene import Scene, conf, opened, status_of

OPTION = PluginOption("any")


def test_priority_lets_jobs_of_lower_priority_be_evicted_and_tasks_of_its_own() -> None:
    scene = Scene(node("a"))
    scene.more["priorities"] = {"low": 1, "high": 2}
    scene.group("low", priorityClassName="low")
    scene.group("high", priorityClassName="high")
    scene.member("low", priority=100)
    scene.member("high", "mine-low", priority=1)
    scene.member("high", "mine", priority=5)
    jobs = opened(scene.session()).jobs
    (other,) = jobs["default/low"].tasks.values()
    lower, mine = jobs["default/high"].tasks.values()
    hooks = priority(opened(scene.session()), OPTION)
    assert hooks.preemptable is not None
    assert hooks.preemptable(mine, [other, lower, mine]) == [other, lower]


def test_conformance_spares_what_the_cluster_depends_on() -> None:
    scene = Scene(node("a"))
    scene.group("g")
    scene.member("g", priority=2_000_000_000)
    scene.member("g", priority=1_999_999_999)
    session = opened(scene.session())
    critical, plain = session.jobs["default/g"].tasks.values()
    hooks = conformance(session, OPTION)
    assert hooks.reclaimable is not None
    assert hooks.reclaimable(plain, [critical, plain]) == [plain]
    plain.pod = replace(plain.pod, namespace="kube-system")
    assert hooks.reclaimable(plain, [critical, plain]) == []


def test_gang_spares_what_a_job_needs() -> None:
    scene = Scene(node("a"))
    scene.group("g", minMember=2, phase="Running")
    for _ in range(3):
        scene.member("g", node="a")
    session = opened(scene.session())
    tasks = list(session.jobs["default/g"].tasks.values())
    hooks = gang(session, OPTION)
    assert hooks.preemptable is not None
    assert hooks.preemptable(tasks[0], tasks) == tasks[:1]


def test_a_dominant_share_follows_what_is_placed_and_taken_back() -> None:
    scene = Scene(node("a", cpu="4", memory="8Gi", pods="10"))
    scene.gang("g", 2)
    session = opened(scene.session(conf("gang", "drf")))
    job = session.jobs["default/g"]
    hooks = drf(session, OPTION)
    assert hooks.job_order is not None
    session.allocated, session.deallocated = (hooks.allocated,), (hooks.deallocated,)
    assert hooks.job_order(job) == 0
    statement = Statement(session)
    for number, task in enumerate(list(job.tasks.values()), start=1):
        statement.allocate(task, 0, session.nodes.view(task))
        assert hooks.job_order(job) == number / 4
    statement.discard()
    assert hooks.job_order(job) == 0


def test_those_may_go_without_whom_a_job_still_has_the_greater_share() -> None:
    scene = Scene(node("a", cpu="8"))
    tasks = []
    for name, number in (("rich", 4), ("poor", 1), ("waits", 1)):
        scene.running(name, *["a"] * (number if name != "waits" else 0))
    scene.member("waits")
    session = opened(scene.session(conf("drf")))
    tasks = [task for name in ("rich", "poor") for task in session.jobs[f"default/{name}"].tasks.values()]
    (waits,) = session.jobs["default/waits"].tasks.values()
    hooks = drf(session, OPTION)
    assert hooks.preemptable is not None
    victims = [task.pod.name for task in hooks.preemptable(waits, tasks)]
    assert victims == ["rich-0", "rich-1", "rich-2"], "with the third both would have as much"
    hooks.allocated(waits)  # type: ignore[misc]
    assert [task.pod.name for task in hooks.preemptable(waits, tasks)] == ["rich-0", "rich-1"]


def test_pods_count_in_a_dominant_share() -> None:
    scene = Scene(node("a", cpu="100", pods="2"))
    scene.group("g", phase="Running")
    scene.member("g", node="a")
    session, _ = scene.run(conf("gang", "drf"))
    assert session.shares == {"default/g": 0.5}


@pytest.mark.parametrize(("factor", "phase"), [("1.0", "Pending"), ("2.0", "Inqueue"), ("0.5", "Pending")])
def test_overcommit_lets_in_what_the_cluster_has_room_for_times_a_factor(factor: str, phase: str) -> None:
    scene = Scene(node("a", cpu="2"))
    scene.group("runs", phase="Running")
    scene.member("runs", cpu="1", node="a")
    scene.group("g", minResources={"cpu": "2"})
    option = PluginOption("overcommit", {"overcommit-factor": factor})
    _, result = scene.run(conf("gang", option))
    assert status_of(result, "g").phase == phase
    messages = [
        event.message for event in result.events if event.type == "Normal" and event.reason != "Scheduled"
    ]
    assert messages == (["resource in cluster is overused: overused cpu"] if phase == "Pending" else [])


@pytest.mark.parametrize("earlier", ["Pending", "Inqueue"])
def test_overcommit_counts_what_was_let_in_before(earlier: str) -> None:
    """By 1.2 of 5 there is room for 6, of which two groups take 4, earlier or in the same session."""
    scene = Scene(node("a", cpu="5"))
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
    scene = Scene(node("a", cpu="1"))
    scene.group("late", minResources={"cpu": "9"}, created="2026-01-01T00:08:59Z")
    scene.group("early", minResources={"cpu": "9"}, created="2026-01-01T00:09:01Z")
    # A vote of an earlier tier keeps the later from rejecting.
    tiers = ((PluginOption("gang"), SLA), (PluginOption("overcommit"),))
    _, result = scene.run(SessionConf(tiers=tiers), now=NOW)
    assert [status_of(result, name).phase for name in ("late", "early")] == ["Inqueue", "Pending"]


@pytest.mark.parametrize(
    ("created", "claims"), [("2026-01-01T00:08:59Z", True), ("2026-01-01T00:09:01Z", False)]
)
def test_a_gang_that_waited_too_long_keeps_what_it_finds_though_that_is_too_little(
    created: str, claims: bool
) -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("late", 2, created=created)
    scene.gang("next", 1, created="2026-01-01T00:09:30Z")
    rest = tuple(PluginOption(name) for name in ("gang", "predicates", "nodeorder"))
    session, _ = scene.run(SessionConf(tiers=((SLA,), rest)), now=NOW)
    assert session.jobs["default/late"].count(TaskStatus.ALLOCATED) == int(claims)
    assert session.jobs["default/next"].ready == int(not claims)


def test_a_job_may_have_a_time_of_its_own() -> None:
    scene = Scene(node("a"))
    scene.group("own", annotations={"sla-waiting-time": "5s"}, created="2026-01-01T00:09:59Z")
    scene.group("other", created="2026-01-01T00:09:58Z")
    scene.group("unread", annotations={"volcano.sh/sla-waiting-time": "soon"}, created="2026-01-01T00:09:57Z")
    session = opened(scene.session(conf("gang", SLA), now=NOW))
    jobs = sorted(session.jobs.values(), key=session.tiers.job_key)
    assert [job.name for job in jobs] == ["own", "unread", "other"]


def test_a_quota_keeps_groups_out_and_counts_those_that_were_let_in() -> None:
    scene = Scene(node("a"))
    roomy = ResourceQuotaStatus(hard={"requests.cpu": "100"}, used={"requests.cpu": "x"})
    status = ResourceQuotaStatus(hard={"requests.cpu": "6", "count/jobs": "1"}, used={"requests.cpu": "2"})
    scene.more["quotas"] = {"default": (roomy, status)}
    for name in ("first", "second", "third"):
        scene.group(name, minResources={"requests.cpu": "2", "memory": "1Ti"})
    scene.group("free")
    _, result = scene.run(conf("gang", "resourcequota"))
    phases = {name: status_of(result, name).phase for name in ("first", "second", "third", "free")}
    assert phases == {"first": "Inqueue", "second": "Inqueue", "third": "Pending", "free": "Inqueue"}
    text = "resource quota insufficient, requested: requests.cpu=2, used: requests.cpu=2, limited: requests.cpu=6"
    assert text in [event.message for event in result.events]


def test_a_job_whose_tasks_all_have_room_does_not_starve() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2, minMember=1)
    session, _ = scene.run()
    job = session.jobs["default/g"]
    by_priority, by_gang = priority(session, OPTION), gang(session, OPTION)
    assert job.count(TaskStatus.PENDING) == 1
    assert by_priority.job_starving is not None and by_priority.job_starving(job)
    assert by_gang.job_starving is not None and not by_gang.job_starving(job)


@pytest.mark.parametrize(("allowed", "evicted"), [(2, 2), (1, 0), (0, 0)])
def test_what_went_elsewhere_counts_in_a_budget(allowed: int, evicted: int) -> None:
    scene = Scene(*(node(name, cpu="1") for name in "abc"))
    scene.group("low", minMember=1, priorityClassName="low", phase="Running")
    for where in "abc":
        scene.member("low", node=where, labels={"app": "x"})
    scene.gang("high", 2, priorityClassName="high")
    selector = label_selector(LabelSelector(match_labels={"app": "x"}), "")
    budget = PDB(
        uid="u",
        name="budget",
        namespace="default",
        resource_version="1",
        selector=selector,
        disruptions_allowed=allowed,
        disrupted_pods=frozenset(),
    )
    scene.more["pdbs"] = pdbs = PDBs()
    pdbs.set(budget)
    scene.more["priorities"] = {"low": 1, "high": 2}
    plugins = ("priority", "gang", "pdb", "predicates", "nodeorder")
    session, _ = scene.run(conf(*plugins, actions="enqueue allocate preempt"))
    assert len(session.evicted) == evicted
