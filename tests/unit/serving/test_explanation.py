"""What people read of the page about one pod."""

from __future__ import annotations

from typing import Any

from agent_scheduler.serving.explanation import render

REFUSED: dict[str, Any] = {
    "pod": "ns/large",
    "scheduler_name": "agent-scheduler",
    "priority": 0,
    "place": "unschedulable",
    "node": None,
    "why": "",
    "leading": True,
    "nominated_node": None,
    "queue": {
        "since": "2026-11-21T09:50:00Z",
        "attempts": 3,
        "backoff_until": None,
        "retried_by": "2026-11-21T09:55:00Z",
        "gated_by": None,
        "gate": None,
        "diagnose": ["NodeAffinity", "NodeResourcesFit"],
        "urgent": False,
    },
    "wakes": {"NodeAffinity": ["NodeAdd", "NodeUpdateLabel"], "Closed": []},
    "decision": {
        "nodes": 5,
        "feasible": 0,
        "message": "0/5 nodes are available: 5 Insufficient cpu.",
        "plugins": [
            {"plugin": "NodeAffinity", "refused": 2, "alone": 0, "reasons": {"no match": 2}, "near": []},
            {
                "plugin": "NodeResourcesFit",
                "refused": 5,
                "alone": 3,
                "reasons": {"Insufficient cpu": 5, "Too many pods": 1},
                "near": [{"node": "n1", "missing": "cpu: 2 more (wants 6, 4 of 4 is free)"}],
            },
        ],
        "best": [],
        "held": [],
    },
    "attempts": [
        {"time": "2026-11-21T09:50:00Z", "seconds": 0.00125, "result": "unschedulable", "message": "0/5 nodes"},
        {"time": "2026-11-21T09:49:00Z", "seconds": 1.5, "result": "error", "message": "binding rejected"},
    ],
}


def test_a_refused_pod_is_shown_with_all_that_is_known_of_it() -> None:
    assert (
        render(REFUSED)
        == """\
Pod          ns/large
Scheduler    agent-scheduler
Priority     0
Place        unschedulable: it is retried after an event that may help
Since        2026-11-21T09:50:00Z
Retried by   2026-11-21T09:55:00Z
Rejected by  NodeAffinity, NodeResourcesFit
Attempts     3

Decision
  0/5 nodes are available: 5 Insufficient cpu.

Plugins that reject nodes
  PLUGIN            REJECTS  ALONE  REASONS
  NodeAffinity      2        0      2 no match
  NodeResourcesFit  5        3      5 Insufficient cpu, 1 Too many pods

  Rejected narrowly by this plugin only:
  PLUGIN            NODE  MISSING
  NodeResourcesFit  n1    cpu: 2 more (wants 6, 4 of 4 is free)

Events that trigger a retry
  PLUGIN        EVENTS
  NodeAffinity  NodeAdd, NodeUpdateLabel
  Closed        nothing

Last attempts, newest first
  TIME                  TOOK       RESULT         MESSAGE OR NODE
  2026-11-21T09:50:00Z  1.2 ms     unschedulable  0/5 nodes
  2026-11-21T09:49:00Z  1500.0 ms  error          binding rejected
"""
    )


def test_a_pod_that_fits_is_shown_with_its_best_nodes() -> None:
    best = [
        {"node": "n1", "total": 150, "scores": {"NodeResourcesFit": 50, "TaintToleration": 100}},
        {"node": "node-2", "total": 90, "scores": {"NodeResourcesFit": 90}},
    ]
    decision = {"nodes": 4, "feasible": 2, "message": "", "plugins": [], "best": best, "held": ["n1"]}
    shown = render({"pod": "ns/p", "place": "active", "decision": decision})
    assert "It fits on 2 of 4 nodes. Nominated pods reserve capacity there: n1." in shown
    assert (
        """\
Best nodes
  NODE    SCORE  NodeResourcesFit  TaintToleration
  n1      150    50                100
  node-2  90     90                0
"""
        in shown
    )


BOUND: dict[str, Any] = {
    "pod": "ns/p",
    "place": "bound",
    "node": "n2",
    "placement": {
        "node": "n2",
        "time": "2026-11-21T09:50:00Z",
        "attempt": 2,
        "by": "worker 0",
        "nominated": True,
        "candidates": [
            {"node": "n2", "below": 0, "since": "unchanged"},
            {"node": "node-3", "below": -12.5, "since": "gone"},
            {"node": "n1", "below": None, "since": "changed"},
        ],
        "now": {
            "nodes": 4,
            "feasible": 1,
            "message": "",
            "plugins": [],
            "best": [{"node": "n2", "total": 235.5, "scores": {"NodeResourcesFit": 85.5, "TaintToleration": 150}}],
            "weights": {"NodeResourcesFit": 1, "TaintToleration": 1.5},
            "note": "the pod keeps its devices",
        },
    },
}


def test_a_bound_pod_is_shown_with_the_decision_and_with_scores_that_are_labelled_as_of_now() -> None:
    assert (
        render(BOUND)
        == """\
Pod    ns/p
Place  bound
Node   n2

Chosen
  by worker 0 in attempt 2, which began at 2026-11-21T09:50:00Z; the pod was nominated to the node, which came first
  CANDIDATE    SCORE BELOW THE CHOSEN  SINCE THEN
  n2 (chosen)  0                       unchanged, apart from this pod
  node-3       -12.5                   gone
  n1           unknown                 changed

Scores as of now, without this pod
  It fits on 1 of 4 nodes. Note: the pod keeps its devices.

Best nodes
  NODE  SCORE  NodeResourcesFit  TaintToleration x 1.5
  n2    235.5  85.5              100
"""
    )


def test_a_bound_pod_without_a_record_says_so() -> None:
    shown = render({"pod": "ns/p", "place": "bound", "node": "n2", "placement": {"unknown": "it was another one"}})
    assert shown.endswith("\nChosen\n  unknown: it was another one\n")


def test_a_gated_pod_names_its_gate() -> None:
    queue = {"gated_by": "SchedulingGates", "gate": "waiting for scheduling gates: [a]"}
    shown = render({"pod": "ns/p", "place": "gated", "queue": queue})
    assert "Gated by  SchedulingGates: waiting for scheduling gates: [a]\n" in shown


def test_a_pod_of_another_scheduler_is_short() -> None:
    shown = render({"pod": "ns/p", "place": "not_ours", "why": "its schedulerName is 'x'", "leading": False})
    assert shown == (
        "Pod    ns/p\nPlace  of another scheduler\nWhy    its schedulerName is 'x'\n"
        "Note   this replica is on standby and makes no decisions\n"
    )


def test_a_plugin_that_failed_is_told() -> None:
    shown = render({"pod": "ns/p", "place": "backoff", "decision": {"problem": "KeyError: 'x'"}})
    assert "  a plugin failed: KeyError: 'x'\n" in shown


#: Values that the page's code tells apart.
TOLD_APART = ("place", "standing")


def poisoned(value: Any) -> Any:
    """The same page, with texts that forge lines and control a terminal."""
    match value:
        case str():
            return value and f"{value}\x1b[2J\n\u202e"
        case dict():
            return {key: each if key in TOLD_APART else poisoned(each) for key, each in value.items()}
        case list():
            return [poisoned(each) for each in value]
    return value


def test_texts_of_objects_neither_add_lines_nor_control_a_terminal() -> None:
    gang = {"podgroup": "ns/train", "place": "waiting", "example": "ns/train-0", "gang": GANG}
    for page in (REFUSED, BOUND, gang):
        lines = render(poisoned(page)).split("\n")
        assert len(lines) == len(render(page).split("\n"))
        assert all(line.isprintable() for line in lines)


def test_only_headings_are_bold_and_only_if_asked_for() -> None:
    assert "\x1b" not in render(REFUSED)
    bold = render(REFUSED, bold=True)
    assert "\x1b[1mPlugins that reject nodes\x1b[0m\n" in bold
    assert bold.replace("\x1b[1m", "").replace("\x1b[0m", "") == render(REFUSED)


def test_a_member_of_a_group_is_shown_with_what_the_others_have_come_to() -> None:
    group = {"name": "g", "needed": 3, "members": 4, "scheduled": 1, "gated": 0, "message": ""}
    line = "Group        g, 3 needed, 4 exist, 1 scheduled, 0 gated"
    assert f"{line}\n" in render(REFUSED | {"group": group})
    assert f"{line}: nobody fits\n" in render(REFUSED | {"group": group | {"message": "nobody fits"}})
    missing = group | {"needed": None}
    assert "g, which does not exist; 4 pods name it\n" in render(REFUSED | {"group": missing})


GANG: dict[str, Any] = {
    "group": "ns/train",
    "phase": "Inqueue",
    "priority": 100,
    "waits_for": "queue",
    "why": "queue team has too little capability left: 1 of cpu missing",
    "minimums": [
        {"of": "group", "needs": 4, "has": 1, "missing": 3},
        {"of": "role master", "needs": 1, "has": 0, "missing": 1},
    ],
    "would_fit": 2,
    "members": {"Pending": 3, "Running": 1},
    "queues": [
        {
            "name": "team",
            "state": "Open",
            "capability": {"cpu": "4", "memory": "8Gi"},
            "deserved": {},
            "used": {"cpu": "2"},
            "missing": {"cpu": "1"},
        }
    ],
    "place": 2,
    "waiting": 5,
    "refusals": [{"pods": 1, "pod": "train-0", "message": "0/2 nodes are unavailable: 2 Insufficient cpu."}],
    "said": [["Unschedulable", "3/4 tasks in gang unschedulable"]],
    "queue": "team",
    "session": {"uid": "u", "ended": "2026-11-21T09:50:00Z"},
}


def test_a_gang_shows_which_minimum_is_short_on_what_and_how_near_it_is() -> None:
    shown = render({"podgroup": "ns/train", "place": "waiting", "example": "ns/train-0", "gang": GANG})
    assert (
        shown
        == """\
PodGroup         ns/train
Place            waiting: sessions of the batch scheduler consider it
One of its pods  ns/train-0

Gang
  It waits for room in a queue, and no node would help: queue team has too little capability left: 1 of cpu missing
  2 of its pods would fit, and have no node because the gang is incomplete.
  Phase Inqueue, priority 100; pods: 3 Pending, 1 Running.
  MINIMUM OF   NEEDS  HAS  MISSING
  group        4      1    3
  role master  1      0    1

Queues
  It is number 2 of 5 waiting gangs in queue team.
  QUEUE  STATE  CAPABILITY        DESERVED  USED   MISSING
  team   Open   cpu=4,memory=8Gi  -         cpu=2  cpu=1

Rejections by nodes
  PODS  SUCH AS  MESSAGE
  1     train-0  0/2 nodes are unavailable: 2 Insufficient cpu.

Messages of the session that ended at 2026-11-21T09:50:00Z
  Unschedulable: 3/4 tasks in gang unschedulable
"""
    )


def test_a_member_names_its_gang_and_is_judged_by_itself() -> None:
    decision = {"nodes": 4, "feasible": 2, "message": "", "plugins": [], "best": []}
    shown = render({"pod": "ns/train-0", "place": "waiting", "gang": GANG, "decision": decision})
    assert "Group  ns/train\n" in shown
    assert "Decision on the pod by itself\n  It fits on 2 of 4 nodes.\n" in shown


def test_a_gang_that_no_session_has_seen_says_why() -> None:
    gang = {"group": "ns/train", "waits_for": "session", "why": "queue q does not exist"}
    shown = render({"pod": "ns/train-0", "place": "waiting", "gang": gang})
    assert shown.endswith("Gang\n  No session has looked at it: queue q does not exist\n")
