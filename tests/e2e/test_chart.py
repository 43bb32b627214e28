"""The chart as a new user installs it: applied by kubectl to a cluster with RBAC and TLS.

All components run from its Deployments, and the webhook reviews every object. Then a Deployment, a gang, a gated pod
and a Job of two stages are placed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUES
from tests.support.needed import kubectl, tool
from tests.support.places import CONFIG

from .installed import Installation
from .test_installed import NAMESPACE, PODS, embedded_alone, own_cluster
from .test_webhook import HERE, reached

pytestmark = [pytest.mark.wide, embedded_alone]

CHART = CONFIG / "helm" / "agent-scheduler"
WEBHOOK = "agent-scheduler-webhook"
COMPONENTS = ("agent-scheduler", "agent-scheduler-controllers", WEBHOOK)
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: agent-scheduler
      containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]
"""


def applied(installed: Installation, *arguments: str, text: str = "") -> None:
    command = [kubectl(), "--kubeconfig", str(installed.kubeconfig), "apply", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def sample(name: str) -> str:
    return (CONFIG / "samples" / f"{name}.yaml").read_text()


def rendered() -> str:
    done = subprocess.run(
        [
            *(tool("helm"), "template", "agent-scheduler", CHART, "--namespace", NAMESPACE, "--include-crds"),
            *("--set", "controllers.enabled=true,webhook.enabled=true"),
            *("--set-json", "scheduler.configuration.batch={}"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


@pytest.mark.promise("GATE-4")
async def test_what_the_chart_installs_runs_a_deployment_a_gang_a_gated_pod_and_a_job(tmp_path: Path) -> None:
    kubectl(), tool("helm")
    async with own_cluster(tmp_path, "--nodes", "3", "--node-cpu", "8", components=[]) as installed:
        namespace = yaml.safe_load((CONFIG / "default" / "namespace.yaml").read_text())
        applied(installed, "-f", "-", text=yaml.safe_dump(namespace))
        text = rendered()
        await asyncio.to_thread(applied, installed, "--server-side", "-f", "-", text=text)
        installed.objects += [each for each in yaml.safe_load_all(text) if each]
        processes = {name: await installed.start(name, name, *(HERE if name == WEBHOOK else ())) for name in COMPONENTS}
        for each in processes.values():
            await each.ready()
        await reached(installed, processes[WEBHOOK])

        gated: dict[str, Any] = next(iter(yaml.safe_load_all(sample("gated"))))
        # The pod has its annotation alone: the webhook adds the gate.
        del gated["spec"]["schedulingGates"]
        for body in (WORKLOAD, sample("queue")):
            await asyncio.to_thread(applied, installed, "-f", "-", text=body)

        await installed.seen(f"{QUEUES}/research", lambda it: it.get("status", {}).get("state") == "Open")
        for body in (sample("gang"), json.dumps(gated), sample("stages")):
            await asyncio.to_thread(applied, installed, "-f", "-", text=body)
        events = await installed.ask("GET", f"{PODS}/gated")
        assert events["metadata"]["annotations"][QUEUE_ALLOCATION_GATE] == "true"

        def all_run(pods: Any) -> bool:
            running = [each for each in pods["items"] if each["status"].get("phase") == "Running"]
            kinds = Counter(each["metadata"]["name"].split("-")[0] for each in running)
            return kinds == {"web": 3, "evaluate": 3, "gated": 1, "train": 3}

        await installed.seen(PODS, all_run)
        refused = [line for account in COMPONENTS for line in installed.refusals(account, NAMESPACE)]
        assert refused == []
        for each in processes.values():
            assert "Traceback" not in each.said()
