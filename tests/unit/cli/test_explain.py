"""The command as a shell sees it: what it prints where, and its exit code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent_scheduler.cli.main import main
from kube_client.testing.scripted import Action, Answer, serving, status
from tests.support.command_line import Command, kubeconfig
from tests.support.embedded import embedded_cluster

Capture = pytest.CaptureFixture[str]


async def run(capsys: Capture, answer: Action, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `explain ns/p` with a server that gives this answer."""
    async with serving(lambda _: answer) as server:
        line = ["explain", "ns/p", "--server", server.url, *arguments]
        code = await asyncio.to_thread(main, line)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


async def test_a_known_pod_is_shown_as_text(capsys: Capture) -> None:
    page = {"pod": "ns/p", "place": "bound", "node": "n1", "attempts": []}
    told = "Pod    ns/p\nPlace  bound\nNode   n1\n"
    assert await run(capsys, Answer(200, page)) == (0, told, "")


async def test_json_is_the_page_as_it_is(capsys: Capture) -> None:
    page = {"pod": "ns/p", "place": "bound", "node": "n1", "new": [{"from": "later"}]}
    code, out, err = await run(capsys, Answer(200, page), "-o", "json")
    assert (code, json.loads(out), err) == (0, page, "")


async def test_an_unknown_pod_is_one_line_and_exit_code_1(capsys: Capture) -> None:
    page = {"pod": "ns/p", "place": "unknown", "why": "it does not exist"}
    told = "agent-scheduler explain: pod ns/p is unknown: it does not exist\n"
    assert await run(capsys, Answer(404, page)) == (1, "", told)
    code, out, err = await run(capsys, Answer(404, page), "-o", "json")
    assert (code, json.loads(out), err) == (1, page, told)


async def test_a_scheduler_that_cannot_tell_is_one_line_and_exit_code_2(capsys: Capture) -> None:
    code, out, err = await run(capsys, Answer(503, b"not\nyet\n"))
    assert (code, out) == (2, "")
    assert err.startswith("agent-scheduler explain: http://127.0.0.1:")
    assert err.endswith("answered: 503 not yet\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("pod", ["p", "/p", "ns/", "a/b/c", "", "podgroup/g", "podgroup//g"])
def test_a_pod_that_is_named_wrongly_is_exit_code_2(capsys: Capture, pod: str) -> None:
    assert main(["explain", pod, "--server", "http://127.0.0.1:1"]) == 2
    shown = capsys.readouterr()
    allowed = "NAMESPACE/POD or podgroup/NAMESPACE/NAME"
    assert (shown.out, shown.err) == ("", f"agent-scheduler explain: found {pod!r}; allowed: {allowed}\n")


async def test_a_group_is_asked_about_by_its_name(capsys: Capture) -> None:
    page = {"podgroup": "ns/g", "place": "unknown", "why": "it does not exist, and no pod names it"}
    async with serving(lambda _: Answer(404, page)) as server:
        line = ["explain", "podgroup/ns/g", "--server", server.url]
        assert await asyncio.to_thread(main, line) == 1
    assert [(each.path, each.query) for each in server.requests] == [("/debug/explain", {"podgroup": "ns/g"})]
    shown = capsys.readouterr()
    assert shown.err == f"agent-scheduler explain: podgroup/ns/g is unknown: {page['why']}\n"


@pytest.mark.parametrize("line", [["explain"], ["explain", "ns/p", "-o", "yaml"], ["explain", "ns/p", "--serv", "x"]])
def test_wrong_usage_is_exit_code_2(capsys: Capture, line: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 2


async def test_a_pod_is_explained_without_a_scheduler_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with embedded_cluster() as cluster:
        afresh = Command("explain --from-cluster", kubeconfig(tmp_path, cluster.server.url), capsys).beside
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("large", cpu="2")
        await cluster.add_pod("small")
        await cluster.add_pod("placed")
        await cluster.bind("placed", "n1")
        before = cluster.api.store.rv
        code, out, _ = await afresh("default/large")
        assert code == 0 and "decided by this command" in out
        assert "0/1 nodes are available: 1 Insufficient cpu." in out
        code, out, _ = await afresh("default/small")
        assert code == 0 and "It fits on 1 of 1 nodes." in out
        code, out, _ = await afresh("default/placed")
        assert code == 0 and "  unknown: the records of this process begin at " in out
        assert "Scores as of now, without this pod\n  It fits on 1 of 1 nodes." in out
        assert (await afresh("default/nobody"))[0] == 1
        code, _, err = await afresh("podgroup/default/g")
        assert code == 2 and "explains only pods" in err
        file = tmp_path / "scheduler.yaml"
        file.write_text("{apiVersion: agent-scheduler/v1, kind: Other}", encoding="utf-8")
        code, _, err = await afresh(f"default/small --config {file}")
        assert code == 2 and "scheduler.yaml:1: kind: found 'Other'" in err
        assert cluster.api.store.rv == before


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, "no connection to 127.0.0.1:1: ConnectionRefusedError"),
        (status(401, "Unauthorized", "Unauthorized"), "list /api/v1/nodes: 401 Unauthorized: Unauthorized"),
        (status(403, "Forbidden", "it is forbidden"), "needed: the right to list and watch nodes, in a role"),
        (status(500, "InternalError", "etcd is down"), "500 InternalError: etcd is down"),
    ],
)
async def test_a_list_that_fails_ends_the_command_with_its_cause(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, answer: Action | None, cause: str
) -> None:
    monkeypatch.setattr("agent_scheduler.cli.afresh.PATIENCE", 3600.0)
    async with serving(lambda _: answer or status(500, "", "")) as server:
        url = "http://127.0.0.1:1" if answer is None else server.url
        code, out, err = await Command("explain --from-cluster", kubeconfig(tmp_path, url), capsys).beside("default/p")
        # The server still accepts connections that the command has closed.
        await asyncio.sleep(0.1)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"agent-scheduler explain: {url}: ") and cause in err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--server http://127.0.0.1:1 --namespace x --lease y", "--namespace, --lease: not allowed with --server"),
        ("--certificate-authority f", "--certificate-authority: needs --server"),
        ("--insecure-skip-tls-verify", "--insecure-skip-tls-verify: needs --server"),
        (
            "--server u --insecure-skip-tls-verify --certificate-authority f",
            "--insecure-skip-tls-verify: not allowed with --certificate-authority",
        ),
        ("--from-cluster --server http://127.0.0.1:1 --token t", "--server, --token: not allowed with --from-cluster"),
    ],
)
def test_a_flag_without_effect_is_refused(capsys: Capture, line: str, told: str) -> None:
    assert main(["explain", "default/p", *line.split()]) == 2
    assert capsys.readouterr().err.startswith(f"agent-scheduler explain: {told}")


async def test_a_configuration_is_of_use_without_a_scheduler_alone(capsys: Capture) -> None:
    assert await asyncio.to_thread(main, ["explain", "default/p", "--config", "f"]) == 2
    assert "--config: needs --from-cluster" in capsys.readouterr().err
