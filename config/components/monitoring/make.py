"""Makes dashboard.json, Grafana's dashboard: rows of panels, three in a line.

python config/components/monitoring/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("dashboard.json")
WIDTH, HEIGHT = 8, 7

Json = dict[str, Any]


class Panel(NamedTuple):
    """`queries`: expressions, each with the legend of its series. `unit` is Grafana's."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    about: str = ""


def quantiles(metric: str, *, by: str = "") -> tuple[tuple[str, str], ...]:
    buckets, _ = rate(f"{metric}_bucket", by=f"le, {by}" if by else "le")
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}{legend}") for share in (0.5, 0.95, 0.99)
    )


#: What the variables at the top choose.
SELECTED = 'namespace=~"$namespace", pod=~"$pod"'


def rate(metric: str, *, by: str = "", of: str = "", legend: str = "") -> tuple[str, str]:
    summed = f"sum by ({by})" if by else "sum"
    shown = legend or (" ".join(f"{{{{{each.strip()}}}}}" for each in by.split(",")) if by else metric)
    return f"{summed} (rate({metric}{{{SELECTED}{of}}}[$__rate_interval]))", shown


def level(metric: str, *, by: str = "", of: str = "", legend: str = "", fold: str = "sum") -> tuple[str, str]:
    summed = f"{fold} by ({by})" if by else fold
    shown = legend or (" ".join(f"{{{{{each.strip()}}}}}" for each in by.split(",")) if by else metric)
    return f"{summed} ({metric}{{{SELECTED}{of}}})", shown


ROWS: dict[str, tuple[Panel, ...]] = {
    "Scheduling": (
        Panel("Attempts", (rate("scheduler_schedule_attempts_total", by="result"),), "ops"),
        Panel("From the queue to the bind", quantiles("scheduler_pod_scheduling_sli_duration_seconds"), "s"),
        Panel("Pods that wait", (level("scheduler_pending_pods", by="queue"),)),
        Panel("Choosing candidate nodes", quantiles("scheduler_scheduling_algorithm_duration_seconds"), "s"),
        Panel("A bind", quantiles("agent_scheduler_bind_duration_seconds"), "s"),
        Panel("Binds by outcome", (rate("agent_scheduler_bind_outcomes_total", by="outcome"),), "ops"),
        Panel(
            "Conflicts a bound pod",
            (
                (
                    rate("agent_scheduler_conflicts_total")[0]
                    + " / "
                    + rate("scheduler_schedule_attempts_total", of=', result="scheduled"')[0],
                    "conflicts",
                ),
            ),
            about="Candidate nodes that had changed since the decision. Above 1: fewer workers, or more candidates.",
        ),
        Panel("Why pods are unschedulable", (level("scheduler_unschedulable_pods", by="plugin"),)),
        Panel("Leader", (level("leader_election_master_status", by="name, pod"),)),
    ),
    "Nodes and shards": (
        Panel("Cache", (level("scheduler_cache_size", by="type", fold="max"),)),
        Panel("Nodes of the shard", (level("agent_scheduler_shard_nodes", by="pod, state"),)),
        Panel("Nodes moved between shards", (rate("agent_scheduler_sharding_moves_total", by="shard, change"),), "ops"),
    ),
    "Batch": (
        Panel("A session", quantiles("agent_scheduler_batch_session_duration_seconds"), "s"),
        Panel("Gangs that wait, by what for", (level("agent_scheduler_batch_groups_waiting", by="reason"),)),
        Panel("Pods bound by sessions", (rate("agent_scheduler_batch_pods_bound_total", legend="pods"),), "ops"),
        Panel(
            "CPU of queues: allocated of capacity",
            (
                (
                    f"max by (queue_name) (volcano_queue_allocated_milli_cpu{{{SELECTED}}}) / "
                    f"max by (queue_name) (volcano_queue_real_capacity_milli_cpu{{{SELECTED}}})",
                    "{{queue_name}}",
                ),
            ),
            "percentunit",
        ),
        Panel("Pods behind the gate of their queue", (level("agent_scheduler_queue_gated_pods", by="standing"),)),
        Panel("Evictions", (rate("agent_scheduler_batch_evictions_total", by="action"),), "ops"),
    ),
    "Controllers and webhook": (
        Panel("Turns of controllers", (rate("agent_scheduler_reconciles_total", by="controller, result"),), "ops"),
        Panel("Objects that wait for a turn", (level("agent_scheduler_reconciles_waiting", by="controller"),)),
        Panel("Reviews", (rate("agent_scheduler_webhook_reviews_total", by="path, result"),), "ops"),
    ),
    "API server": (
        Panel("Requests", (rate("agent_scheduler_api_requests_total", by="method, code"),), "reqps"),
        Panel("Changes that watches bring", (rate("agent_scheduler_watch_events_total", by="kind"),), "ops"),
        Panel("Lists, by why", (rate("agent_scheduler_lists_total", by="kind, reason"),), "ops"),
    ),
    "Processes": (
        Panel("CPU", (rate("process_cpu_seconds_total", by="pod"),), "percentunit"),
        Panel("Memory", (level("process_resident_memory_bytes", by="pod"),), "bytes"),
        Panel(
            "The event loop is late by",
            quantiles("agent_scheduler_loop_lag_seconds", by="pod")[2:],
            "s",
            about="Half a second and more: the process lacks CPU.",
        ),
    ),
}


def dashboard() -> Json:
    panels: list[Json] = []
    line = 0
    for row, within in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": line, "w": 24, "h": 1},
            }
        )
        line += 1
        for number, panel in enumerate(within):
            place = {"x": number % 3 * WIDTH, "y": line + number // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, place))
        line += -(-len(within) // 3) * HEIGHT
    return {
        "title": "agent-scheduler",
        "uid": "agent-scheduler",
        "tags": ["kubernetes", "scheduling"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "graphTooltip": 1,
        "templating": {"list": [_datasource(), *map(_variable, ("namespace", "pod"))]},
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: Json) -> Json:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _datasource() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(name: str) -> Json:
    query = f"label_values(agent_scheduler_build_info, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n")
