"""The configuration: what is accepted, what it becomes, and how a mistake is told."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.config import checks
from agent_scheduler.config.flags import FLAGS
from agent_scheduler.config.load import ConfigurationSource, load, load_text, to_dict
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.config.schema import FEATURE_GATES, Configuration
from apimachinery.errors import ConfigurationError
from tests.support.command_line import HEADER, problem, refusal, run_arguments, saying, warnings

Load = Callable[..., Configuration]


@pytest.fixture
def run(tmp_path: Path) -> Load:
    """Loads as the command line would: `run("--port", "1", file=text)`."""

    def load_as_run(*words: str, file: str = "") -> Configuration:
        arguments = list(words)
        if file:
            path = tmp_path / "scheduler.yaml"
            path.write_text(HEADER + file)
            arguments += ["--config", str(path)]
        return load(run_arguments(*arguments), environ={}, namespace_file=tmp_path / "none")

    return load_as_run


# ---- what it becomes


def test_without_file_and_flags_one_profile_has_the_default_name(run: Load) -> None:
    configuration = run()
    assert [profile.scheduler_name for profile in configuration.profiles] == ["agent-scheduler"]
    assert configuration.worker_count == 1
    assert configuration.feature_gates == FEATURE_GATES
    assert configuration.leader_election.leader_elect


def test_a_file_sets_what_it_names_and_leaves_the_rest_at_its_default() -> None:
    configuration = load_text(
        HEADER
        + """
profiles:
- schedulerName: packer
  plugins:
    filter: {disabled: [{name: NodePorts}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 7}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 2}]}}
- schedulerName: spreader
  base: default-scheduler
podMaxInUnschedulablePodsDuration: 1m30s
clientConnection: {qps: 50}
"""
    )
    profiles = build_profiles(configuration)
    assert [score.weight for score in profiles["packer"].scores] == [7]
    filters = {plugin.name for plugin in profiles["packer"].filters}
    assert "NodePorts" not in filters and "NodeResourcesFit" in filters
    spread = {score.plugin.name for score in profiles["spreader"].scores}
    assert {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration"} <= spread
    assert configuration.pod_max_in_unschedulable_pods_duration == 90
    assert configuration.client_connection.burst == 100
    assert configuration.pod_max_backoff_seconds == 10


ON = "leaderElection: {leaderElect: true}"
BACKOFF, HINTS = "feature_gates.SchedulerPopFromBackoffQ", "feature_gates.SchedulerPreQueueingHints"
OFF = "featureGates: {SchedulerPopFromBackoffQ: false, SchedulerPreQueueingHints: false}"


@pytest.mark.parametrize(
    ("flags", "file", "setting", "expected"),
    [
        ("--scheduler-worker-count 4", "workerCount: 2", "worker_count", 4),
        ("--agent_scheduler_worker_count 3", "", "worker_count", 3),
        ("--port=0", "serving: {port: 1234}", "serving.port", 0),
        ("--log-level debug", "logging:", "logging.level", "debug"),
        ("--kube-api-qps 20.5", "", "client_connection.burst", 41),
        ("--leader-elect", ON, "leader_election.leader_elect", True),
        ("--leader-elect=true", ON, "leader_election.leader_elect", True),
        ("--leader-elect=false", ON, "leader_election.leader_elect", False),
        ("--no-leader-elect", ON, "leader_election.leader_elect", False),
        # Where a shard has a lease, no other is wanted unless it is asked for.
        ("--scheduler-sharding-mode hard", "", "leader_election.leader_elect", False),
        ("--scheduler-sharding-mode hard --leader-elect", "", "leader_election.leader_elect", True),
        ("--scheduler-sharding-mode hard", ON, "leader_election.leader_elect", True),
        ("--lock-object-namespace locks", "", "leader_election.resource_namespace", "locks"),
        ("--leader-elect-resource-namespace locks", "", "leader_election.resource_namespace", "locks"),
        ("--leader-elect --scheduler-name x", "", "leader_election.resource_name", "x"),
        ("--scheduler-name b", "profiles: [{schedulerName: a}]", "profiles.0.scheduler_name", "b"),
        ("--scheduler-name b", "profiles: [{base: default-scheduler}]", "profiles.0.base", "default-scheduler"),
        ("", OFF, BACKOFF, False),
        ("--feature-gates SchedulerPopFromBackoffQ=true", OFF, BACKOFF, True),
        ("", "", HINTS, True),
        ("--feature-gates SchedulerPreQueueingHints=false", "", HINTS, False),
        ("", OFF, HINTS, False),
    ],
)
def test_a_flag_lies_over_the_file(run: Load, flags: str, file: str, setting: str, expected: object) -> None:
    found: Any = run(*flags.split(), file=file)
    for step in setting.split("."):
        if isinstance(found, dict):
            found = found[step]
        else:
            found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert found == expected and type(found) is type(expected)


def test_a_pod_whose_namespace_cannot_be_told_has_to_be_given_it(tmp_path: Path) -> None:
    def loaded(*words: str) -> Configuration:
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        return load(run_arguments(*words), environ=environ, namespace_file=tmp_path / "none")

    assert problem(loaded) == (
        "leaderElection.resourceNamespace: is missing and unknown: in this pod neither $POD_NAMESPACE nor "
        "the service account's namespace file exists; set it, identically for all replicas"
    )
    assert loaded("--leader-elect-resource-namespace", "here").leader_election.resource_namespace == "here"
    assert not loaded("--leader-elect=false").leader_election.leader_elect


def test_the_namespace_of_a_lease_is_ours_and_what_said_it_is_known(tmp_path: Path) -> None:
    file, none = tmp_path / "scheduler.yaml", tmp_path / "none"

    def origin(*words: str, namespace_file: Path = none, **environ: str) -> tuple[str, str]:
        source = ConfigurationSource(run_arguments(*words), environ=environ, namespace_file=namespace_file)
        found = source.load().leader_election.resource_namespace
        return found, source.origin(("leaderElection", "resourceNamespace"))

    assert origin() == ("agent-scheduler", "the default outside a cluster")
    assert origin(POD_NAMESPACE="a") == ("a", "$POD_NAMESPACE")
    mounted = tmp_path / "namespace"
    mounted.write_text("a\n")
    assert origin(namespace_file=mounted) == ("a", str(mounted))
    file.write_text(HEADER + "leaderElection:\n  resourceNamespace: b\n")
    said = f"{file}:4: leaderElection.resourceNamespace"
    assert origin("--config", str(file), POD_NAMESPACE="a") == ("b", said)
    flag = "--leader-elect-resource-namespace"
    assert origin("--config", str(file), flag, "c") == ("c", flag)


def test_what_was_loaded_can_be_shown_and_loaded_again(run: Load) -> None:
    configuration = run("--leader-elect", "--leader-elect-lease-duration", "20s", "--kube-api-qps", "5")
    shown = to_dict(configuration)
    assert shown["leaderElection"]["leaseDuration"] == "20s"
    assert shown["podMaxInUnschedulablePodsDuration"] == "5m0s"
    assert load_text(yaml.safe_dump(shown)) == configuration


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--leader-elect-lease-duration", "the duration of a lease (default: 15s)"),
        ("--kube-api-qps", "binds per second; 0: no limit (default: 0)"),
        ("--port", "port of the HTTP server; 0: none (default: 10251)"),
        ("--tls-private-key-file", "PEM file of the certificate's key"),
        ("--scheduler-sharding-name", "name of the NodeShard (default: the scheduler's name)"),
    ],
)
def test_a_flag_says_the_default_of_its_setting(flag: str, said: str) -> None:
    assert next(each.help for each in FLAGS if flag in each.names) == said


# ---- how a mistake is told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("serving:\n  prot: 1\n", "4: serving.prot: unknown key; did you mean port? allowed: authorizeMetrics,"),
        (
            "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: NodeAffinity\n"
            "      - name: TaintToleration\n        weight: ten\n",
            "9: profiles[0].plugins.score.enabled[1].weight: found 'ten'; allowed: a whole number from 0 to 1000000",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesBalancedAllocation\n"
            "  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: Random}}\n",
            "7: profiles[0].pluginConfig[1].args.scoringStrategy.type: found 'Random'; allowed: LeastAllocated",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_whole_path(text: str, told: str) -> None:
    assert refusal(text).startswith(f"f.yaml:{told}")


MISTAKES = {
    "extenders: [{urlPrefix: 'http://a'}]": "is not supported: there are no scheduler",
    "healthzBindAddress: 0.0.0.0:10251": "is not supported: see serving.bindAddress",
    "workerCount: 0": "found the number 0; allowed: a whole number from 1 to 1024",
    "workerCount: 1.5": "found the number 1.5; allowed: a whole number",
    "workerCount: true": "found true; allowed: a whole number",
    "workerCount: '2'": "found '2'; allowed: a whole number",
    "podInitialBackoffSeconds: 0": "found the number 0; allowed: a number above 0",
    "podInitialBackoffSeconds: .nan": "found the number nan",
    "podMaxInUnschedulablePodsDuration: 0s": "must be above 0s",
    "conflictPolicy: lenient": "found 'lenient'; allowed: revalidate, strict",
    "conflictPolicy: revaldate": "found 'revaldate'; did you mean revalidate?",
    "profiles: {}": "found an object; allowed: a list",
    "serving: [1]": "found a list; allowed: an object with authorizeMetrics",
    "serving.port: 70000": "found the number 70000; allowed: a whole number from 0 to 65535",
    "serving.bindAddress: localhost": "found 'localhost'; allowed: an IP address",
    "logging.level: 2026-01-01": "found a date",
    "sharding.mode: hrad": "found 'hrad'; did you mean hard? allowed: hard, none, soft",
    "sharding.leaseNamespace: A_b, mode: hard": "found 'A_b'; allowed: an object's name",
    "tracing.samplingRatePerMillion: 1000001": "found",
    "tracing.samplingRatePerMillion: -1": "found",
    "tracing.samplingRate: 1": "unknown key",
    "tracing.endpoint: 'http://me@c:4318'": "has a user or a password",
    "tracing.endpoint: 'http://:pw@c:4318'": "has a user or a password",
    "tracing.endpoint: 'http://c/?a=b'": "found 'http://c/?a=b'; allowed: a URL without a query",
    "tracing.endpoint: 'http://c/#a'": "found 'http://c/#a'; allowed: a URL without a query",
    "leaderElection.resourceLock: endpoints": "is not supported: the lock is always a Lease",
    "leaderElection.resourceNamespace: A_b": "found 'A_b'; allowed: an object's name",
    "leaderElection.resourceName: A_b, leaderElect: true": "found 'A_b'",
    "leaderElection.leaseDuration: 15": "found the number 15; allowed: a duration such as 500ms, 15s or 5m",
    "leaderElection.leaseDuration: 10s": "found 10s; allowed: more than",
    "leaderElection.leaseDuration: 15500ms": "must be whole seconds",
    "leaderElection.retryPeriod: 0s": "must be above 0s",
    "clientConnection.burst: 5": "has no effect while qps is 0",
    "statusWrites.qps: -1": "found the number -1; allowed: a number, 0 or more",
    "featureGates.SchedulerPopFromBackofQ: true": "unknown gate; did you mean SchedulerPopFromBackoffQ?",
    "featureGates.SchedulerPopFromBackoffQ: maybe": "found 'maybe'; allowed: true, false",
    "profiles[0].schedulerName: 'a b'": "found 'a b'; allowed: a name without",
    "profiles[0].base: fast": "found 'fast'; allowed: agent, default-scheduler",
    "profiles[0].pluginConfig[0].name: Nope": "found 'Nope'; allowed:",
    "profiles[0].plugins.filter.enabled[0].name: NodePort": "found 'NodePort'; did you mean NodePorts?",
    "profiles[0].plugins.filter.enabled[0].weight: 2, name: NodePorts": "is for scores only",
    "profiles[0].plugins.preEnqueue.disabled[0].name: SchedulingGates": "SchedulingGates cannot be disabled",
}


def test_a_self_signed_certificate_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    told = "serving.selfSignedCertificate: needs the library cryptography; install agent-scheduler[tls], or"
    assert told in refusal(saying("serving.selfSignedCertificate", "true"))
    files = "{selfSignedCertificate: true, tlsCertFile: c, tlsPrivateKeyFile: k}"
    assert load_text(HEADER + saying("serving", files)).serving.has_tls


@pytest.mark.parametrize(("said", "told"), MISTAKES.items())
def test_a_mistake_is_told_with_its_place_in_the_file(said: str, told: str) -> None:
    path, value = said.split(": ", 1)
    assert f"f.yaml:3: {path}: {told}" in refusal(saying(path, value))


MISTAKES_BESIDE_OTHERS = {
    "podInitialBackoffSeconds: 20": "podMaxBackoffSeconds: found 10; allowed: 0 (no backoff), or",
    "serving: {tlsCertFile: a.pem}": "serving.tlsPrivateKeyFile: is missing",
    "serving: {tlsPrivateKeyFile: a.pem}": "serving.tlsCertFile: is missing",
    f"sharding: {{mode: hard, name: {'a' * 244}}}": "at most 243 characters",
    f"leaderElection: {{resourceName: {'a' * 254}}}": "at most 253 characters",
    "leaderElection: {leaseDuration: 15}": "(did you mean 15s?)",
    "leaderElection: {retryPeriod: 9s}": "leaderElection.renewDeadline: found 10s; allowed: more than 1.2",
    "featureGates: {1: true}": "featureGates: found the key the number 1; allowed: a string",
    "profiles: [{schedulerName: a}, {schedulerName: a}]": "profiles[1].schedulerName: found 'a', which",
    "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}}]": (
        "profiles[0].plugins.score.enabled[1].name: found 'NodeAffinity' a second time"
    ),
    "profiles: [{pluginConfig: [{name: NodePorts}, {name: NodePorts}]}]": (
        "profiles[0].pluginConfig[1].name: found 'NodePorts' a second time"
    ),
    "profiles: [{pluginConfig: [{args: {}}]}]": "profiles[0].pluginConfig[0].name: is missing",
    "workerCount: 1\nworkerCount: 2": "f.yaml:4: the key 'workerCount' was given already on line 3",
    "serving: {port: 1, port: 2}": "f.yaml:3: the key 'port' was given already on line 3",
    "workerCount: [": "f.yaml:4: invalid YAML",
    "workerCount: !!python/object:os.system {}": "f.yaml:3: invalid YAML",
    "---\nworkerCount: 1": "invalid YAML",
    "workerCount: 2001-99-99": "f.yaml: invalid YAML",
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES_BESIDE_OTHERS.items())
def test_a_mistake_beside_others_or_of_the_whole_file_is_told(text: str, expected: str) -> None:
    assert expected in refusal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: SchedulerConfiguration", "apiVersion: is missing; allowed: agent-scheduler/v1"),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: SchedulerConfiguration",
            "f:1: apiVersion: found 'kubescheduler.config.k8s.io/v1'; allowed: agent-scheduler/v1: a Kube"
            "SchedulerConfiguration is read after three changes",
        ),
        ("- 1", "f:1: found a list; allowed: an object with"),
        ("[" * 1_000_000, "nested too deeply; allowed: 100 levels"),
    ],
)
def test_what_is_no_configuration_is_told(text: str, expected: str) -> None:
    assert expected in problem(load_text, text, source="f")


MISTAKES_IN_FLAGS = {
    "--scheduler-worker-count 0": "--scheduler-worker-count: found the number 0; allowed: a whole number",
    "--scheduler-worker-count two": "--scheduler-worker-count: found 'two'; allowed: a whole number",
    "--port 65536": "--port: found the number 65536; allowed: a whole number from 0 to 65535",
    "--kube-api-qps many": "--kube-api-qps: found 'many'; allowed: a number, 0 or more",
    "--kube-api-qps nan": "--kube-api-qps: found the number nan",
    "--kube-api-burst 5": "--kube-api-burst: has no effect while qps is 0",
    "--kube-api-qps 5 --kube-api-burst 0": "--kube-api-burst: found the number 0",
    "--log-level loud": "--log-level: found 'loud'; allowed: debug, error, info, warning",
    "--leader-elect=perhaps": "--leader-elect: found 'perhaps'; allowed: true, false",
    "--bind-address here": "--bind-address: found 'here'; allowed: an IP address",
    "--scheduler-name=": "--scheduler-name: found ''; allowed: a name without spaces",
    "--feature-gates A": "--feature-gates: found 'A'; allowed: GATE=true or GATE=false",
    "--feature-gates A=true": (
        "--feature-gates: unknown gate 'A'; allowed: GangScheduling, SchedulerPopFromBackoffQ, "
        "SchedulerPreQueueingHints"
    ),
    "--no-leader-elect --leader-elect-lease-duration 20s": (
        "--leader-elect-lease-duration: has no effect without leader election"
    ),
    "--leader-elect --leader-elect-renew-deadline 20s": (
        "leaderElection.leaseDuration: found 15s; allowed: more than renewDeadline (20s)"
    ),
    "--leader-elect --leader-elect-lease-duration 9s": (
        "--leader-elect-lease-duration: found 9s; allowed: more than renewDeadline (10s)"
    ),
    "--lock-object-namespace a --leader-elect-resource-namespace b": (
        "--lock-object-namespace: found 'a', but --leader-elect-resource-namespace says 'b'"
    ),
    "--config /nowhere.yaml": "--config /nowhere.yaml: No such file or directory",
    "--config /": "--config /: Is a directory",
    "--config /dev/null": "--config /dev/null: the file is empty",
}


@pytest.mark.parametrize(("line", "expected"), MISTAKES_IN_FLAGS.items())
def test_a_mistake_in_a_flag_is_told_by_the_flags_name(run: Load, line: str, expected: str) -> None:
    assert expected in problem(run, *line.split())


@pytest.mark.parametrize(
    "url", ["collector:4317", "grpc://collector", "http://", "http://c:port", "http://c:0", "http://c d/"]
)
def test_an_endpoint_that_is_no_url_is_told_with_its_line(url: str) -> None:
    text = refusal(f"tracing:\n  endpoint: '{url}'\n")
    assert text.startswith(f"f.yaml:4: tracing.endpoint: found '{url}'; allowed: the http:// or https://")


@pytest.mark.parametrize("text", ["{}", "{endpoint: 'http://c:4318'}", "{samplingRatePerMillion: 0}"])
def test_a_section_by_which_no_pod_is_traced_says_so(text: str) -> None:
    (said,) = warnings(f"tracing: {text}\n")
    assert "tracing.samplingRatePerMillion: is 0 or missing" in said


def test_a_password_of_an_endpoint_is_not_shown() -> None:
    assert "secret" not in refusal("tracing: {endpoint: 'http://me:secret@c:4318'}")


def test_without_backoff_the_first_pause_may_be_any() -> None:
    configuration = load_text(HEADER + "podMaxBackoffSeconds: 0\npodInitialBackoffSeconds: 20\n")
    assert configuration.pod_max_backoff_seconds == 0


def test_a_name_for_a_file_with_several_profiles_is_refused(run: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"--scheduler-name: the file has 2 profiles \(a, b\)"):
        run("--scheduler-name", "c", file="profiles: [{schedulerName: a}, {schedulerName: b}]")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        load(argparse.Namespace(config=str(file)))
