"""The command line of `agent-scheduler webhook`: what flags say, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scheduler.admission.jobs import JobRules
from agent_scheduler.admission.queues import QueueRules
from agent_scheduler.cli.main import main
from agent_scheduler.process import webhook_flags
from tests.support.command_line import Meant

from .test_controller_flags import DURATION, in_full

settings = Meant(webhook_flags)


def test_the_defaults_make_a_certificate_and_gate_pods_of_both_schedulers() -> None:
    found = settings()
    assert found.schedulers == ("volcano", "agent-scheduler")
    assert found.gates
    assert found.queues == QueueRules(max_depth=5, keep_allocated=False, protect_root=True)
    assert found.jobs == JobRules(scheduler="volcano", strict_min_available=True)
    assert (found.serving.bind_address, found.serving.port) == ("127.0.0.1", 8443)
    own, name = found.certificate, "agent-scheduler-webhook"
    assert (own.namespace, own.secret) == ("here", f"{name}-certificate")
    assert own.hosts == (f"{name}.here.svc", f"{name}.here.svc.cluster.local")
    assert (own.mutating, own.validating) == (name, name)
    assert found.shutdown_delay == 5.0
    assert found.warnings == ()


def test_flags_say_something_else(tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text("resourceGroups: [{resourceGroup: x}]")
    found = settings(
        "--scheduler-name a --scheduler-name b --scheduler-name a --feature-gates "
        f"SchedulingGatesQueueAdmission=false --admission-conf {file} --max-queue-depth 3 "
        "--enable-queue-allocated-pods-check --enable-root-queue-protection=false --shutdown-delay 1m "
        "--strict-min-available=false --service-name s --certificate-secret c --certificate-host 10.0.0.7 "
        "--mutating-webhook-configuration= --validating-webhook-configuration v "
        "--port 9443 --bind-address 0.0.0.0 --authorize-metrics"
    )
    assert found.schedulers == ("a", "b")
    assert not found.gates
    assert len(found.groups) == 1
    assert found.queues == QueueRules(max_depth=3, keep_allocated=True, protect_root=False)
    assert found.jobs == JobRules(scheduler="a", strict_min_available=False)
    own = found.certificate
    assert own.hosts == ("s.here.svc", "s.here.svc.cluster.local", "10.0.0.7")
    assert (own.secret, own.mutating, own.validating) == ("c", "", "v")
    assert (found.serving.port, found.serving.authorize_metrics) == (9443, True)
    assert found.shutdown_delay == 60.0


def test_a_certificate_that_is_given_is_not_made() -> None:
    found = settings("--tls-cert-file c --tls-private-key-file k --service-name s")
    assert found.certificate is None
    assert found.warnings == ("--service-name beside --tls-cert-file: the webhook creates no certificate",)


MISTAKES = {
    "--port 0": "found 0; allowed: a port from 1 to 65535",
    "--port 70000": "found the number 70000; allowed: a whole number from 0 to 65535",
    "--bind-address here": "found 'here'; allowed: an IP address; 0.0.0.0 or :: for all",
    "--tls-cert-file c": ("--tls-private-key-file: is missing: a certificate needs its key, and a key its certificate"),
    "--scheduler-name a,b": "found 'a,b'; allowed: a scheduler's name",
    "--feature-gates SchedulingGateQueueAdmission=true": (
        "unknown gate 'SchedulingGateQueueAdmission'; did you mean "
        "SchedulingGatesQueueAdmission? allowed: SchedulingGatesQueueAdmission"
    ),
    "--max-queue-depth 0": "found '0'; allowed: a whole number, 1 or more",
    "--enable-root-queue-protection=maybe": "found 'maybe'; allowed: true, false",
    "--strict-min-available=warn": "found 'warn'; allowed: true, false",
    "--service-name a/b": "found 'a/b'; allowed: an object's name",
    "--shutdown-delay 5": f"found '5'; {DURATION}",
    "--admission-conf /none": "cannot read /none: No such file or directory",
}


@pytest.mark.parametrize(("line", "told"), MISTAKES.items())
def test_wrong_input_is_told_by_its_flag_and_what_is_allowed(line: str, told: str) -> None:
    assert settings.problem(line) == in_full(line, told)


def test_without_a_namespace_there_is_no_place_for_the_secret() -> None:
    expected = "--certificate-secret: its namespace is unknown: the test; set $POD_NAMESPACE"
    assert settings.problem(namespace="") == expected


def test_without_the_library_a_certificate_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_flags, "find_spec", lambda name: None)
    assert "install agent-scheduler[webhook], or provide a certificate" in settings.problem()
    assert settings("--tls-cert-file c --tls-private-key-file k").certificate is None


def test_the_command_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhook", "--max-queue-depth", "no"]) == 2
    assert capsys.readouterr().err == (
        "agent-scheduler webhook: --max-queue-depth: found 'no'; allowed: a whole number, 1 or more\n"
    )
