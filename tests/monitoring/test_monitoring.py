"""Dashboard and alerts in a real Prometheus.

Each expression is evaluated on the metrics of real processes, and each alert on series of a bad day and of a good one.
"""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bench.harness.processes import free_port
from tests.console.world import console_world
from tests.project.test_docs import PROCESSES
from tests.support.embedded import until
from tests.support.http_servers import http_server
from tests.support.needed import tool
from tests.support.places import CONFIG
from tests.support.webhooks import webhooks

MONITORING = CONFIG / "components" / "monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
ALERTS: Mapping[str, Any] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}


def plain(expression: str) -> str:
    """Return the expression without Grafana's variables."""
    chosen = expression.replace("$__rate_interval", "1m")
    return re.sub(r'=~"\$\w+"', '=~".*"', chosen)


def names_in(expression: str) -> set[str]:
    """Return the names of metrics."""
    outside = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)', " ", expression)
    return {name for name in re.findall(r"[a-z_][a-z0-9_]*", outside) if "_" in name} - {"histogram_quantile"}


# ---- the files


def test_the_dashboard_is_what_its_maker_makes() -> None:
    made = runpy.run_path(str(MONITORING / "make.py"))["dashboard"]()
    assert made == DASHBOARD, "run: python config/components/monitoring/make.py"
    places = [tuple(panel["gridPos"].values())[:2] for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


def test_each_alert_says_what_to_do() -> None:
    text = (CONFIG.parent / "docs" / "alerts.md").read_text()
    for name, rule in ALERTS.items():
        assert f"## {name}\n" in text
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert {*re.findall(r"^## (AgentScheduler\w+)$", text, re.MULTILINE)} == ALERTS.keys()


# ---- metrics of real processes


@asynccontextmanager
async def prometheus(folder: Path, ports: Mapping[str, int]) -> AsyncIterator[str]:
    """Scrape each of these jobs twice a second; yield the server's URL."""
    scrapes = []
    for job, port in ports.items():
        labels = {"namespace": "agent-scheduler", "pod": f"{job}-0"}
        targets = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
        scrapes.append({"job_name": job, "static_configs": [targets]})
    every = {"scrape_interval": "500ms", "scrape_timeout": "400ms"}
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump({"global": every, "scrape_configs": scrapes}))
    flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=error")
    process = await asyncio.create_subprocess_exec(
        *(tool("prometheus"), *flags, f"--web.listen-address=127.0.0.1:{port}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.wide
async def test_every_expression_means_something_to_what_real_processes_expose(tmp_path: Path) -> None:
    async with webhooks() as hooks, console_world(2, port=free_port()) as it, AsyncExitStack() as ends:
        webhook = hooks.start()
        await until(lambda: webhook.port)
        ports: dict[str, int] = {}
        processes = {"scheduler": it.runtime, "controllers": it.controllers, "webhook": webhook}
        for name, process in processes.items():
            server = http_server(process.sources(), address="127.0.0.1", port=0)
            ports[name] = await server.start()
            ends.push_async_callback(server.stop)
        await it.queues()
        await it.jobs(1)
        async with prometheus(tmp_path, ports) as url, aiohttp.ClientSession() as session:

            async def ask(path: str, **query: str) -> Any:
                async with session.get(f"{url}/api/v1/{path}", params=query) as answer:
                    found = await answer.json()
                    assert found["status"] == "success", found
                    return found["data"]

            async def scraped() -> bool:
                try:
                    told = (await ask("query", query="count_over_time(up[1m])"))["result"]
                except aiohttp.ClientError:
                    return False
                return len(told) == 3 and all(int(each["value"][1]) >= 3 for each in told)

            for number in range(3):
                await it.cluster.add_pod(f"agent-{number}")
            await it.cluster.add_pod("too-large", cpu="99")
            await until(scraped)
            exposed = {*await ask("label/__name__/values")}
            rules = {name: rule["expr"] for name, rule in ALERTS.items()}
            for name, expression in {**PANELS, **rules}.items():
                await ask("query", query=plain(expression))
                unknown = names_in(expression) - exposed
                # Families with labels have no series before the first event that they count.
                assert not {each for each in unknown if not _known(each)}, (name, unknown)
            shown = [name for name, expression in PANELS.items()
                     if (await ask("query", query=plain(expression)))["result"]]  # fmt: skip
            expected = {"Attempts", "From the queue to the bind", "Pods that wait", "Requests", "CPU"}
            assert {f"{panel} A" for panel in expected} <= {*shown}, shown


def _known(name: str) -> bool:
    """Return whether a process has such a family."""
    return any(name.removesuffix("_bucket") in each(version="1").families.made for each in PROCESSES)


# ---- a bad day and a good one

SLI = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="%s"}'
LAG = 'agent_scheduler_loop_lag_seconds_bucket{pod="p",le="%s"}'
LEADS = 'leader_election_master_status{name="agent-scheduler"%s}'
ATTEMPTS = 'scheduler_schedule_attempts_total{result="%s"}'
BINDS = 'agent_scheduler_bind_outcomes_total{outcome="%s"}'
POSTS = 'agent_scheduler_api_requests_total{job="j",method="POST",code="%s"}'
RECONCILES = 'agent_scheduler_reconciles_total{controller="job",result="%s"}'
REVIEWS = 'agent_scheduler_webhook_reviews_total{path="/p",result="%s"}'
#: Alert -> series of a bad day (Prometheus' notation), the minute at which it fires, and series of a good one.
DAYS: Mapping[str, tuple[Mapping[str, str], str, Mapping[str, str]]] = {
    "NobodyLeads": ({LEADS % "": "1 0x20"}, "5m", {LEADS % ',pod="a"': "1x20", LEADS % ',pod="b"': "0x20"}),
    "Slow": ({SLI % "1.28": "0x40", SLI % "2.56": "0+60x40", SLI % "+Inf": "0+60x40"}, "20m",
             {SLI % "0.01": "0+60x40", SLI % "+Inf": "0+60x40"}),
    "QueueGrows": ({'scheduler_pending_pods{queue="active"}': "0+50x40"}, "30m",
                   {'scheduler_pending_pods{queue="active"}': "5000-100x40"}),
    "AttemptsFail": ({ATTEMPTS % "error": "0+10x40", ATTEMPTS % "scheduled": "0+50x40"}, "20m",
                     {ATTEMPTS % "error": "0+1x40", ATTEMPTS % "scheduled": "0+500x40"}),
    "Conflicts": ({"agent_scheduler_conflicts_total": "0+300x40", ATTEMPTS % "scheduled": "0+60x40"}, "30m",
                  {"agent_scheduler_conflicts_total": "0+30x40", ATTEMPTS % "scheduled": "0+60x40"}),
    "BindsFail": ({BINDS % "bound": "0+50x40", BINDS % "refused": "0+50x40"}, "20m", {BINDS % "bound": "0+50x40"}),
    "ApiErrors": ({POSTS % "200": "0+50x40", POSTS % "<error>": "0+9x40"}, "20m", {POSTS % "409": "0+50x40"}),
    "WatchesFail": ({'agent_scheduler_watch_steps_total{kind="pods",step="failure"}': "0+9x40"}, "25m",
                    {'agent_scheduler_watch_steps_total{kind="pods",step="watch"}': "0+9x40"}),
    "LoopStalls": ({LAG % "0.5": "0x40", LAG % "1": "0+60x40", LAG % "+Inf": "0+60x40"}, "20m",
                   {LAG % "0.5": "0+60x40", LAG % "+Inf": "0+60x40"}),
    "Defect": ({"agent_scheduler_worker_failures_total": "0 1x40"}, "5m",
               {"agent_scheduler_worker_failures_total": "1x40"}),
    "HintMissed": ({"scheduler_pod_scheduled_after_flush_total": "0x5 1x40"}, "10m",
                   {"scheduler_pod_scheduled_after_flush_total": "1x40"}),
    "ConfigurationRefused": ({'agent_scheduler_config_last_reload_successful{pod="p"}': "0x40"}, "10m",
                             {'agent_scheduler_config_last_reload_successful{pod="p"}': "1x40"}),
    "GangsLackPods": ({'agent_scheduler_batch_groups_waiting{reason="members"}': "2x60"}, "40m",
                      {'agent_scheduler_batch_groups_waiting{reason="nodes"}': "2x60"}),
    "GatesNotRemoved": ({'agent_scheduler_queue_gate_removals_total{result="failed"}': "0+60x40"}, "30m",
                        {'agent_scheduler_queue_gate_removals_total{result="removed"}': "0+60x40"}),
    "ControllersBehind": ({'agent_scheduler_reconciles_waiting{controller="job"}': "5000x40"}, "20m",
                          {'agent_scheduler_reconciles_waiting{controller="job"}': "50x40"}),
    "ReconcilesFail": ({RECONCILES % "again": "0+60x60", RECONCILES % "done": "0+60x60"}, "40m",
                       {RECONCILES % "done": "0+60x60"}),
    "ShardsNotWritten": ({"agent_scheduler_sharding_foreign_shards": "1x40"}, "20m",
                         {"agent_scheduler_sharding_foreign_shards": "0x40"}),
    "WebhookNotReady": ({REVIEWS % "not_ready": "0+9x40"}, "20m", {REVIEWS % "allowed": "0+9x40"}),
    "CertificateEnds": ({"agent_scheduler_webhook_certificate_expiry_timestamp_seconds": "86400x120"}, "90m",
                        {"agent_scheduler_webhook_certificate_expiry_timestamp_seconds": "0x120"}),
}  # fmt: skip


@pytest.mark.wide
def test_each_alert_fires_on_a_bad_day_and_is_silent_on_a_good_one(tmp_path: Path) -> None:
    assert {f"AgentScheduler{name}" for name in DAYS} == ALERTS.keys()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    tests = []
    for name, (bad, at, good) in DAYS.items():
        alert = f"AgentScheduler{name}"
        for series, fires in ((bad, True), (good, False)):
            values = [{"series": each, "values": text} for each, text in series.items()]
            expression = {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            about = {"name": f"{alert} {'bad' if fires else 'good'}", "interval": "1m"}
            tests.append({**about, "input_series": values, "promql_expr_test": [expression]})
    cases = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases))
    command = [tool("promtool"), "test", "rules", "test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["alerts.yaml", "service-monitor.yaml"])
def test_what_the_operator_reads_selects_what_is_installed(what: str) -> None:
    for each in yaml.safe_load_all((MONITORING / what).read_text()):
        assert each["apiVersion"] == "monitoring.coreos.com/v1"
        assert each["metadata"]["namespace"] == "agent-scheduler"
