"""The command line of a kube-scheduler: each flag has its effect, or is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.cli.main import main
from agent_scheduler.config.kube_scheduler import REFUSED
from agent_scheduler.config.load import load
from agent_scheduler.config.schema import Configuration
from apimachinery.errors import ConfigurationError
from tests.support.command_line import problem, run_arguments


def loaded(*words: str) -> Configuration:
    return load(run_arguments(*words), environ={}, namespace_file=Path("/none"))


def test_a_manifest_of_kube_scheduler_says_what_to_change() -> None:
    """The command that kubeadm writes, with what it has no use for taken out one by one."""
    file = "/etc/kubernetes/scheduler.conf"
    words = [f"--kubeconfig={file}", "--bind-address=127.0.0.1", "--leader-elect=true"]
    for more in ("--authentication-kubeconfig", "--authorization-kubeconfig"):
        told = problem(loaded, *words, f"{more}={file}")
        assert told.startswith(f"{more}: is not supported: ") and "serving.authorizeMetrics" in told
    configuration = loaded(*words)
    assert configuration.leader_election.leader_elect
    assert configuration.client_connection.kubeconfig == "/etc/kubernetes/scheduler.conf"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_by_name_and_what_happens_anyway_is_not(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}: ."):
        loaded(f"{name}=something")
    for value in REFUSED[name].harmless:
        loaded(f"{name}={value}")
    assert len({"true", "false"} & {*REFUSED[name].harmless}) < 2, "one of the two asks for what is not there"


@pytest.mark.parametrize(
    ("line", "section", "key", "value"),
    [
        ("-v 2", "logging", "level", "info"),
        ("-v=4", "logging", "level", "debug"),
        ("--v=10", "logging", "level", "debug"),
        ("--logging-format=text", "logging", "format", "console"),
        ("--logging-format json", "logging", "format", "json"),
        ("--secure-port=0", "serving", "port", 0),
        ("--secure-port=1 --tls-cert-file=c --tls-private-key-file=k", "serving", "port", 1),
        ("--leader-elect-resource-lock=leases", "leader_election", "leader_elect", True),
    ],
)
def test_what_has_another_name_here_has_its_effect(line: str, section: str, key: str, value: Any) -> None:
    assert getattr(getattr(loaded(*line.split()), section), key) == value


def test_a_refused_pod_is_tried_again_after_the_time_that_the_flag_says() -> None:
    configuration = loaded("--pod-max-in-unschedulable-pods-duration=90s")
    assert configuration.pod_max_in_unschedulable_pods_duration == 90


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--secure-port", "10259"], "--secure-port: the server speaks HTTP without a certificate; give "),
        (["--secure-port", "1", "--port", "2"], "--secure-port: --port is the same setting; use one of them"),
        (["-v", "much"], "--v: found 'much'; allowed: a whole number"),
        (["-v", "4", "--log-level", "info"], "--v: --log-level is the same setting; use one of them"),
        (["--logging-format", "xml"], "--logging-format: found 'xml'; allowed: json, text"),
        (["--feature-gates=NoSuchGate=true"], "--feature-gates: unknown gate 'NoSuchGate'"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], told: str) -> None:
    assert problem(loaded, *words).startswith(told)


def test_what_is_in_effect_is_written_and_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "effective.yaml"
    line = "--scheduler-worker-count 3 --leader-elect-resource-namespace here --kube-api-qps 5"
    words = line.split()
    assert main(["run", *words, "--write-config-to", str(file)]) == 0
    assert loaded("--config", str(file)) == loaded(*words)
    assert main(["run", "--write-config-to", str(tmp_path / "none" / "x")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_run_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("agent-scheduler ")
