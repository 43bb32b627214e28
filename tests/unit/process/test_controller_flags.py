"""The command line of `agent-scheduler controllers`: what flags say, and what is refused before anything starts."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from agent_scheduler.process import controller_flags
from tests.support.command_line import Command, Meant, kubeconfig

settings = Meant(controller_flags)
SHARDING = "--enable sharding"


def test_the_defaults_are_volcanos_with_a_lease_of_its_own() -> None:
    found = settings("--enable sharding")
    assert found.enabled == ("sharding",)
    election = found.election
    assert election.leader_elect and election.resource_namespace == "here"
    assert election.resource_name == "agent-scheduler-controllers"
    assert (found.serving.bind_address, found.serving.port) == ("127.0.0.1", 10252)
    sharding = found.sharding
    assert (sharding.namespace, sharding.config_map) == ("volcano-system", "volcano-sharding-configmap")
    assert (sharding.lease_namespace, sharding.fence) == ("here", 60.0)
    assert (sharding.flags.sync_period, sharding.flags.event_trigger) == (60.0, True)
    assert sharding.flags.plan.names == ("volcano", "agent-scheduler")
    assert found.warnings == ()


def test_flags_say_something_else() -> None:
    found = settings(
        "--enable sharding,sharding --no-leader-elect --port 0 --authorize-metrics --sharding-configmap c "
        "--sharding-configmap-namespace ns --sharding-lease-namespace leases --shard-sync-period 1m30s "
        "--enable-node-event-trigger=false --scheduler-configs one:volcano:0.0:1.0:false:0:0 "
        "--log-level debug --kubeconfig file"
    )
    assert found.enabled == ("sharding",)
    assert not found.election.leader_elect
    assert (found.serving.port, found.serving.authorize_metrics) == (0, True)
    sharding = found.sharding
    assert (sharding.namespace, sharding.config_map, sharding.lease_namespace) == ("ns", "c", "leases")
    assert (sharding.flags.sync_period, sharding.flags.event_trigger) == (90.0, False)
    assert sharding.flags.plan.names == ("one",)
    assert (found.logging.level, found.kubeconfig) == ("debug", "file")
    assert "--scheduler-configs is deprecated: use a ConfigMap with sharding.yaml" in found.warnings


NAMES = "job, podgroup, queue, sharding"
DURATION = "allowed: a duration above 0, such as 500ms, 15s or 5m"
#: Of the last flag of a line, unless another is named.
MISTAKES = {
    "": f"--enable: no controller is specified; allowed: {NAMES}",
    "--enable ,": f"no controller is specified; allowed: {NAMES}",
    "--enable shrading": f"unknown controller 'shrading'; did you mean sharding? allowed: {NAMES}",
    f"{SHARDING} --shard-sync-period 5": f"found '5'; {DURATION}",
    f"{SHARDING} --shard-sync-period 0s": f"found '0s'; {DURATION}",
    f"{SHARDING} --enable-node-event-trigger=perhaps": "found 'perhaps'; allowed: true, false",
    f"{SHARDING} --sharding-configmap a/b": "found 'a/b'; allowed: an object's name",
    f"{SHARDING} --leader-elect-renew-deadline 20s": (
        "--leader-elect-lease-duration: found 15s; allowed: more than renewDeadline (20s), so that a leader "
        "stops before another may start"
    ),
    f"{SHARDING} --no-leader-elect --leader-elect-retry-period 1s": (
        "has no effect without leader election; remove it"
    ),
    f"{SHARDING} --bind-address here": "found 'here'; allowed: an IP address; 0.0.0.0 or :: for all",
    "--enable podgroup --scheduler-name a,b": "found 'a,b'; allowed: a scheduler's name",
}


@pytest.mark.parametrize(("line", "told"), MISTAKES.items())
def test_what_cannot_be_used_is_told_with_the_flag(line: str, told: str) -> None:
    assert settings.problem(line) == in_full(line, told)


def in_full(line: str, told: str) -> str:
    return told if told.startswith("--") else f"{re.findall('--[a-z-]+', line)[-1]}: {told}"


def test_jobs_have_the_plugin_ssh_only_where_it_is_switched_on() -> None:
    assert settings("--enable job").job.ssh is False
    assert settings("--enable job --enable-ssh-plugin").job.ssh is True


def test_names_of_schedulers_whose_pods_get_groups_are_a_list() -> None:
    assert settings("--enable podgroup").podgroup.schedulers == ("volcano",)
    found = settings("--enable queue,podgroup --scheduler-name a --scheduler-name b")
    assert (found.enabled, found.podgroup.schedulers) == (("queue", "podgroup"), ("a", "b"))


def test_what_keeps_it_from_starting_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    start = Command("controllers", kubeconfig(tmp_path), capsys)
    told = f"--enable: unknown controller 'cron'; allowed: {NAMES}"
    assert start("--enable cron") == (2, "", f"agent-scheduler controllers: {told}\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = start(f"{SHARDING} --port {port}")
    assert code == 2 and f"cannot serve on 127.0.0.1 port {port}" in err
    start.kubeconfig = Path("/no/such/file")
    code, _, err = start(SHARDING)
    last = err.splitlines()[-1]
    assert code == 2 and last.startswith("agent-scheduler controllers: ") and "/no/such/file" in last
