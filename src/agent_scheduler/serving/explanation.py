"""Formats the page about one pod as aligned text, in the order of the usual questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_scheduler.engine.verdicts import SENTENCES
from apimachinery.plural import counted
from apimachinery.visible import visible

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"

_PLACES = {
    "active": "active: it is tried next",
    "backoff": "backoff: it is retried when its backoff ends",
    "unschedulable": "unschedulable: it is retried after an event that may help",
    "waiting": "waiting: sessions of the batch scheduler consider it",
    "complete": "complete: it has its minimum",
    "gated": "gated: it is not tried until its gates are removed",
    "in_flight": "in flight: it is being scheduled or bound",
    "bound": "bound",
    "deleting": "deleting",
    "not_ours": "of another scheduler",
    "unknown": "unknown",
}


def render(page: Mapping[str, Any], *, bold: bool = False) -> str:
    """Format a page of /debug/explain; with `bold`, headings are bold for a terminal."""

    def section(text: str, lines: Iterable[str]) -> list[str]:
        heading = visible(text)
        return [f"{BOLD}{heading}{PLAIN}" if bold else heading, *map(visible, lines)]

    sections = [[*map(visible, _facts(page))]]
    if page.get("gang"):
        sections += [section(name, lines) for name, lines in _gang_sections(page["gang"])]
    if page.get("placement"):
        sections += [section(name, lines) for name, lines in _placement_sections(page["placement"])]
    if page.get("decision"):
        alone = " on the pod by itself" if page.get("gang") else ""
        sections += [section(name, lines) for name, lines in _decision_sections(f"Decision{alone}", page["decision"])]
    if page.get("wakes"):
        rows = [(plugin, ", ".join(events) or "nothing") for plugin, events in page["wakes"].items()]
        sections.append(section("Events that trigger a retry", _table(("PLUGIN", "EVENTS"), rows)))
    if page.get("attempts"):
        sections.append(section("Last attempts, newest first", _attempts(page["attempts"])))
    return "\n\n".join("\n".join(each) for each in sections) + "\n"


def _facts(page: Mapping[str, Any]) -> list[str]:
    queue = page.get("queue") or {}
    facts = [
        ("Pod", page.get("pod")),
        ("PodGroup", page.get("podgroup")),
        ("Scheduler", page.get("scheduler_name")),
        ("Priority", page.get("priority")),
        ("Place", _PLACES.get(page["place"], page["place"])),
        ("Why", page.get("why")),
        ("Waits for", page.get("waits_for")),
        ("Node", page.get("node")),
        ("Nominated to", page.get("nominated_node")),
        ("Group", _group(page.get("group")) or _gang_of(page)),
        ("One of its pods", page.get("example")),
        ("Gated by", _joined(": ", queue.get("gated_by"), queue.get("gate"))),
        ("Queue's gate", _queue_gate(page.get("queue_gate"))),
        ("Since", queue.get("since")),
        ("Backs off until", queue.get("backoff_until")),
        ("Retried by", queue.get("retried_by")),
        ("Rejected by", ", ".join(queue.get("diagnose") or ())),
        ("Attempts", queue.get("attempts")),
        ("Note", page.get("note")),
        ("Note", None if page.get("leading", True) else "this replica is on standby and makes no decisions"),
    ]
    shown = [(name, str(value)) for name, value in facts if value is not None and value != ""]
    width = max(len(name) for name, _ in shown) + 2
    return [f"{name:<{width}}{value}" for name, value in shown]


#: The maximum number of listed predecessors in the queue.
_NAMED = 5


def _queue_gate(gate: dict[str, Any] | None) -> str | None:
    if gate is None:
        return None
    if gate["standing"] == "reserved":
        return f"removed; its capacity in queue {gate['queue']} is reserved"
    together, before = gate["together"], gate["before"]
    behind = f"{len(before)} before it: {', '.join(before[:_NAMED])}" if before else ""
    if len(before) > _NAMED:
        behind += ", ..."
    shut = f"present, {gate['why']}" if gate["why"] else "about to be removed"
    beside = f"with {counted(len(together), 'other')} of its gang" if together else ""
    return "; ".join(filter(None, (shut, beside, behind)))


def _group(group: dict[str, Any] | None) -> str | None:
    if group is None:
        return None
    if group["needed"] is None:
        verb = "names" if group["members"] == 1 else "name"
        return f"{group['name']}, which does not exist; {counted(group['members'], 'pod')} {verb} it"
    counts = f"{group['members']} exist, {group['scheduled']} scheduled, {group['gated']} gated"
    return _joined(": ", f"{group['name']}, {group['needed']} needed, {counts}", group["message"])


def _gang_of(page: Mapping[str, Any]) -> str | None:
    """Return the gang of a pod; None on the page of a group."""
    group: str | None = page["gang"]["group"] if "pod" in page and page.get("gang") else None
    return group


_AMOUNTS = ("capability", "deserved", "used", "missing")


def _gang_sections(gang: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the headings and lines about a gang."""
    why = _joined(": ", SENTENCES.get(gang["waits_for"], gang["waits_for"]), gang["why"])
    lines = [f"  {why}"]
    if "minimums" not in gang:
        return [("Gang", lines)]
    if gang["would_fit"]:
        lines.append(f"  {gang['would_fit']} of its pods would fit, and have no node because the gang is incomplete.")
    counts = (f"{count} {status}" for status, count in gang["members"].items())
    pods = ", ".join(counts) or "none"
    lines.append(f"  Phase {gang['phase'] or 'Pending'}, priority {gang['priority']}; pods: {pods}.")
    rows = [(each["of"], *(str(each[key]) for key in ("needs", "has", "missing"))) for each in gang["minimums"]]
    sections = [("Gang", [*lines, *_table(("MINIMUM OF", "NEEDS", "HAS", "MISSING"), rows)])]
    turn = f"  It is number {gang['place']} of {gang['waiting']} waiting gangs in queue {gang['queue']}."
    queues = [(each["name"], each["state"], *(_amounts(each[key]) for key in _AMOUNTS)) for each in gang["queues"]]
    if queues:
        table = _table(("QUEUE", "STATE", *map(str.upper, _AMOUNTS)), queues)
        sections.append(("Queues", [*([turn] if gang["place"] else []), *table]))
    if gang["refusals"]:
        refusals = [(str(each["pods"]), each["pod"], each["message"]) for each in gang["refusals"]]
        sections.append(("Rejections by nodes", _table(("PODS", "SUCH AS", "MESSAGE"), refusals)))
    said = [f"  {reason}: {message}" for reason, message in gang["said"]]
    sections.append((f"Messages of the session that ended at {gang['session']['ended']}", said or ["  nothing"]))
    return sections


def _amounts(amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items()) or "-"


def _placement_sections(placement: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the headings and lines about a pod with a node: the decision as it was, and as it would be now."""
    if "unknown" in placement:
        sections = [("Chosen", [f"  unknown: {placement['unknown']}"])]
    else:
        why = "; the pod was nominated to the node, which came first" if placement["nominated"] else ""
        line = f"  by {placement['by']} in attempt {placement['attempt']}, which began at {placement['time']}{why}"
        rows = []
        for each in placement["candidates"]:
            below = "unknown" if each["below"] is None else str(each["below"])
            if each["node"] == placement["node"]:
                rows.append((f"{each['node']} (chosen)", below, f"{each['since']}, apart from this pod"))
            else:
                rows.append((each["node"], below, each["since"]))
        sections = [("Chosen", [line, *_table(("CANDIDATE", "SCORE BELOW THE CHOSEN", "SINCE THEN"), rows)])]
    now = placement.get("now")
    return sections + (_decision_sections("Scores as of now, without this pod", now) if now else [])


def _decision_sections(name: str, decision: dict[str, Any]) -> list[tuple[str, list[str]]]:
    if decision.get("problem"):
        return [(name, [f"  a plugin failed: {decision['problem']}"])]
    note = f" Note: {decision['note']}." if decision.get("note") else ""
    sections = [(name, [f"  {_verdict(decision)}{note}"])]
    if decision["plugins"]:
        sections.append(("Plugins that reject nodes", _plugins(decision["plugins"])))
    if decision["best"]:
        sections.append(("Best nodes", _best(decision["best"], decision.get("weights"))))
    return sections


def _joined(between: str, *parts: str | None) -> str:
    return between.join(part for part in parts if part)


def _verdict(decision: dict[str, Any]) -> str:
    if decision["message"]:
        return str(decision["message"])
    text = f"It fits on {decision['feasible']} of {decision['nodes']} nodes."
    if decision.get("held"):
        text += f" Nominated pods reserve capacity there: {', '.join(decision['held'])}."
    return text


def _plugins(plugins: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            each["plugin"],
            str(each["refused"]),
            str(each["alone"]),
            ", ".join(f"{count} {reason}" for reason, count in each["reasons"].items()),
        )
        for each in plugins
    ]
    lines = _table(("PLUGIN", "REJECTS", "ALONE", "REASONS"), rows)
    near = [(each["plugin"], miss["node"], miss["missing"]) for each in plugins for miss in each["near"]]
    if near:
        lines += ["", "  Rejected narrowly by this plugin only:", *_table(("PLUGIN", "NODE", "MISSING"), near)]
    return lines


def _best(best: Sequence[dict[str, Any]], weights: Mapping[str, float] | None) -> list[str]:
    """Format the score of each plugin from 0 to 100, with its weight in the heading, and the weighted sum.

    Without weights, as from an earlier version, the scores are the weighted ones.
    """
    weights = weights or dict.fromkeys(best[0]["scores"], 1)
    heads = [name if weight == 1 else f"{name} x {weight:g}" for name, weight in weights.items()]
    rows = [
        (
            each["node"],
            str(each["total"]),
            *(f"{each['scores'].get(name, 0) / weight:.4g}" for name, weight in weights.items()),
        )
        for each in best
    ]
    return _table(("NODE", "SCORE", *heads), rows)


def _attempts(attempts: Sequence[dict[str, Any]]) -> list[str]:
    rows = [(each["time"], f"{each['seconds'] * 1000:.1f} ms", each["result"], each["message"]) for each in attempts]
    return _table(("TIME", "TOOK", "RESULT", "MESSAGE OR NODE"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a table with columns as wide as their content; the last column may have any length."""
    lines = [head, *(tuple(map(visible, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return [
        "  " + "  ".join([*(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]])
        for line in lines
    ]
