"""The job controller: its effects for users, and that the next process continues where the last one was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_client.testing.virtual import virtual_time
from kube_client.transport import OutcomeUnknown, Response
from tests.support.batched import COMMANDS
from tests.support.embedded import PODS
from tests.support.jobs import GROUPS, JOBS, REST, JobsWorld, jobs_run, jobs_world, policy
from tests.support.objects import task
from tests.support.transports import Through

#: More writes than a process makes in any of the tests below.
_WRITES = 26
_ALL = ("j-a-0", "j-a-1", "j-b-0")


async def _runs(it: JobsWorld, *, bound: bool = False, **spec: object) -> None:
    """Let the Job of two tasks run."""
    await it.let_in(task("a", 2), task("b", 1), **spec)
    if bound:
        await it.bind_all(*_ALL)
    await it.pods_are("Running", *_ALL)
    await it.group_is("Running")
    assert await it.phase() == "Running"


async def _dies(it: JobsWorld, at: int, *, sent: bool, while_: Callable[[], Awaitable[None]]) -> bool:
    """Kill a process at its write number `at` after `while_`. Return False if it had no such write to make."""
    dying = it.dying(10**9, sent=sent)
    process = it.start(dying)
    await asyncio.sleep(REST)
    dying._left = at
    await while_()
    await asyncio.sleep(REST)
    await it.kill(process)
    return dying.died.is_set()


def _at_every_write(dies_at: Callable[[int, list[bool]], None]) -> None:
    """Repeat until there is no such write to make."""
    for at in range(_WRITES):
        found: list[bool] = []
        dies_at(at, found)
        if found == [False]:
            break
    assert found == [False], "it never ran to the end"
    assert at > 5


@pytest.mark.promise("JOB-11")
@pytest.mark.parametrize("sent", [False, pytest.param(True, marks=pytest.mark.wide)])
@pytest.mark.parametrize("bound", [pytest.param(False, marks=pytest.mark.wide), True])
def test_a_restart_that_was_begun_is_finished_once(sent: bool, bound: bool) -> None:
    @virtual_time
    async def dies_at(at: int, found: list[bool]) -> None:
        async with jobs_run() as it:
            await _runs(it, bound=bound, policies=[policy("PodFailed", "RestartJob")])
            await it.kill(it.processes[-1])

            async def fails() -> None:
                await it.pods_are("Failed", "j-a-0")

            found.append(await _dies(it, at, sent=sent, while_=fails))
            it.start()
            await asyncio.sleep(REST)
            await it.reap()
            status = await it.status()
            assert (status["retryCount"], status["version"], status["state"]["phase"]) == (1, 1, "Pending")
            assert await it.pods() == {}
            await it.group_is("Inqueue")
            pods = await it.pods()
            assert {each["metadata"]["annotations"]["volcano.sh/job-version"] for each in pods.values()} == {"1"}
            assert sorted(pods) == sorted(_ALL)

    _at_every_write(dies_at)


@pytest.mark.parametrize("sent", [pytest.param(False, marks=pytest.mark.wide), True])
def test_a_command_is_carried_out_whoever_dies(sent: bool) -> None:
    @virtual_time
    async def dies_at(at: int, found: list[bool]) -> None:
        async with jobs_run() as it:
            await _runs(it, bound=True)
            await it.kill(it.processes[-1])
            found.append(await _dies(it, at, sent=sent, while_=lambda: it.command("AbortJob")))
            it.start()
            await asyncio.sleep(REST)
            await it.reap()
            assert await it.phase() == "Aborted"
            assert await it.items(COMMANDS) == []
            assert await it.items(GROUPS) == []
            await it.ordered("ResumeJob")
            assert await it.phase() == "Pending"

    _at_every_write(dies_at)


@pytest.mark.parametrize(
    ("action", "phase"),
    [("AbortJob", "Aborted"), ("TerminateJob", "Terminated"), ("CompleteJob", "Completed"), ("RestartJob", "Pending")],
)
async def test_what_failed_while_nobody_led_is_answered(action: str, phase: str) -> None:
    async with jobs_run() as it:
        await _runs(it, policies=[policy("PodFailed", action)])
        await it.kill(it.processes[-1])
        await it.pods_are("Failed", "j-b-0")
        it.start()
        await asyncio.sleep(REST)
        status = await it.status()
        assert status["state"]["phase"] == phase
        restarted = action == "RestartJob"
        assert (status.get("failed", 0), status.get("retryCount", 0)) == ((0, 1) if restarted else (1, 0))


@pytest.mark.parametrize(("action", "kept"), [("RestartPod", True), ("RestartTask", True), ("RestartJob", False)])
async def test_only_an_action_of_the_whole_job_makes_its_group_anew(action: str, kept: bool) -> None:
    async with jobs_run() as it:
        await _runs(it, policies=[policy("PodFailed", action)])
        (before,) = await it.items(GROUPS)
        await it.pods_are("Failed", "j-b-0")
        await it.reap()
        assert [group["metadata"]["uid"] == before["metadata"]["uid"] for group in await it.items(GROUPS)] == [kept]
        assert (await it.status()).get("version", 0) == (0 if kept else 1)


@pytest.mark.promise("S35")
async def test_a_pod_that_is_made_late_for_an_earlier_version_of_the_job_is_made_anew() -> None:
    """The server carries the request out after the restart of the Job, and the pod runs before any of the new group."""
    async with jobs_run() as it:
        await it.let_in(task("a", 1), task("b", 1, dependsOn={"name": ["a"]}))
        body = (await it.pods())["j-a-0"]
        await it.ordered("RestartJob")
        assert await it.pods() == {}
        kept = {key: body["metadata"][key] for key in ("name", "labels", "annotations", "ownerReferences")}
        await it.add(PODS, {"metadata": kept, "spec": body["spec"]})
        await it.pods_are("Running", "j-a-0")
        await it.group_is("Inqueue")
        versions = {
            name: pod["metadata"]["annotations"]["volcano.sh/job-version"] for name, pod in (await it.pods()).items()
        }
        assert versions == {"j-a-0": "1"}


async def test_why_its_group_cannot_be_scheduled_is_an_event_of_the_job_while_that_is_so() -> None:
    async with jobs_run() as it:
        await it.add_job(task("a", 1, minimum=1))
        (group,) = await it.items(GROUPS)
        path = f"{GROUPS}/{group['metadata']['name']}"
        told = "PodGroup default:j unschedulable, reason: 1/1 tasks in gang unschedulable"
        for kind, notes in (("Scheduled", []), ("Unschedulable", [told])):
            condition = {"type": kind, "status": "True", "message": "1/1 tasks in gang unschedulable"}
            await it.patch(path, {"status": {"phase": "Inqueue", "conditions": [condition]}})
            await asyncio.sleep(REST)
            assert [note for note in await it.notes() if "unschedulable" in note] == notes


@pytest.mark.promise("JOB-13")
async def test_who_waits_for_whom_is_told_with_numbers() -> None:
    async with jobs_run() as it:
        await it.let_in(
            task("a", 3, minimum=2),
            task("b", 1, minimum=1),
            task("c", 1, minimum=1, dependsOn={"name": ["a", "b"]}),
            minimum=4,
        )
        state = (await it.status())["state"]
        assert (state["reason"], state["message"]) == (
            *("TasksWaiting", "c waits for a (0 of 2 ready), b (0 of 1 ready)"),
        )
        await it.pods_are("Running", "j-a-0", "j-b-0")
        assert (await it.status())["state"]["message"] == "c waits for a (1 of 2 ready)"
        await it.pods_are("Succeeded", "j-a-1")
        assert "j-c-0" in await it.pods()
        assert "message" not in (await it.status())["state"]
        # The pod exists, and waits for no other any more.
        await it.pods_are("Failed", "j-a-0")
        assert "message" not in (await it.status())["state"]


async def test_pods_whose_turn_does_not_come_keep_no_room() -> None:
    async with jobs_run() as it:
        await it.let_in(
            task("a", 3, minimum=2),
            task("b", 1, dependsOn={"name": ["a"]}, policies=[policy("PodEvicted", "AbortJob")]),
            task("c", 1, dependsOn={"name": ["b"]}),
            task("d", 1, dependsOn={"name": ["b", "e"], "iteration": "any"}),
            task("e", 1),
            reserves=True,
        )
        assert sorted(await it.pods()) == ["j-a-0", "j-a-1", "j-a-2", "j-b-0", "j-c-0", "j-d-0", "j-e-0"]
        await it.pods_are("Succeeded", "j-a-0")
        await it.pods_are("Failed", "j-a-1")
        assert {"j-b-0", "j-c-0"} <= (await it.pods()).keys(), "another may be ready yet"
        await it.pods_are("Failed", "j-a-2")
        assert sorted(await it.pods()) == ["j-a-0", "j-a-1", "j-a-2", "j-d-0", "j-e-0"]
        state = (await it.status())["state"]
        assert state["phase"] == "Pending", "it is no eviction that policies answer"
        assert state["message"].startswith("b waits in vain for a (1 of 2 ready)")
        # Pods whose turn may come again stand by again.
        await it.delete(f"{PODS}/j-a-1")
        await asyncio.sleep(REST)
        assert {"j-a-1", "j-b-0", "j-c-0"} <= (await it.pods()).keys()


class Telling(Through):
    """A transport that records the writes: the method, and the kind with its subresource."""

    def __init__(self, it: JobsWorld) -> None:
        super().__init__(it.transport)
        self.written: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method != "GET":
            kind, *rest = path.partition("/namespaces/default/")[2].split("/")
            self.written.append(f"{method} {'/'.join((kind, *rest[1:]))}")
        return await super().request(method, path, **more)


async def test_pods_that_run_at_once_are_counted_once() -> None:
    async with jobs_world() as it:
        telling = Telling(it)
        it.start(telling)
        await asyncio.sleep(REST)
        await it.add_job(task("a", 2), task("b", 1))
        (group,) = await it.items(GROUPS)
        path = f"{GROUPS}/{group['metadata']['name']}"
        await it.patch(path, {"status": {"phase": "Inqueue"}})
        await asyncio.sleep(0.5)
        for name in _ALL:
            await it.patch(path, {"status": {"phase": "Running"}})
            await it.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
            await asyncio.sleep(0.05)
        await asyncio.sleep(REST)
        await it.pods_are("Succeeded", *_ALL)
        assert await it.phase() == "Completed"
        # Its phases are Pending, Running and Completed.
        assert telling.written.count("PATCH jobs/status") == 3
        assert telling.written.count("POST pods") == 3


class Late(Through):
    """Loses the answer to the write of the Job's status, and lets a user change the Job before it is read.

    Watches lag, so that the controller's read is the first to show the change.
    """

    def __init__(self, it: JobsWorld) -> None:
        super().__init__(it.transport)
        self.user: Callable[[], Awaitable[Any]] | None = None

    async def request(self, method: str, path: str, **more: Any) -> Response:
        user = self.user if path.endswith("/jobs/j/status") else None
        if user is None:
            return await super().request(method, path, **more)
        if method == "GET":
            self.user = None
            await user()
            return await super().request(method, path, **more)
        await super().request(method, path, **more)
        raise OutcomeUnknown("the answer is lost")

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async with super().stream(path, read_timeout=read_timeout) as batches:

            async def behind() -> AsyncIterator[list[bytes]]:
                async for lines in batches:
                    await asyncio.sleep(0.05)
                    yield lines

            yield behind()


async def test_what_a_user_changes_while_the_status_is_written_is_not_lost() -> None:
    async with jobs_world() as it:
        late = Late(it)
        it.start(late)
        await asyncio.sleep(REST)
        await _runs(it)
        larger = {"spec": {"minAvailable": 3, "tasks": [task("a", 3), task("b", 1)]}}
        late.user = lambda: it.patch(f"{JOBS}/j", larger)
        await it.pods_are("Succeeded", "j-b-0")
        assert late.user is None
        assert "j-a-2" in await it.pods()


async def test_a_pod_that_is_one_too_many_is_no_evicted_one() -> None:
    async with jobs_run() as it:
        await _runs(it, bound=True, policies=[policy("PodEvicted", "RestartJob")])
        smaller = {"spec": {"minAvailable": 2, "tasks": [task("a", 1), task("b", 1)]}}
        await it.patch(f"{JOBS}/j", smaller)
        await asyncio.sleep(REST)
        # The process that takes over during the deletion sees a pod that is being deleted.
        await it.kill(it.processes[-1])
        it.start()
        await asyncio.sleep(REST)
        await it.reap()
        status = await it.status()
        assert "retryCount" not in status
        assert (status["state"]["phase"], sorted(await it.pods())) == ("Running", ["j-a-0", "j-b-0"])


async def test_a_pod_that_is_pending_for_too_long_is_answered_in_time() -> None:
    async with jobs_run() as it:
        await it.let_in(task("a", 2, policies=[policy("PodPending", "RestartTask", timeout="20s")]), task("b", 1))
        await it.pods_are("Running", "j-b-0", "j-a-1")
        assert "retryCount" not in await it.status()
        before = await it.pods()
        await asyncio.sleep(20.0)
        assert (await it.status())["retryCount"] == 1
        now = await it.pods()
        same = {name for name in now if now[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]}
        assert same == {"j-b-0"}


@pytest.mark.promise("JOB-7")
async def test_a_job_whose_first_task_failed_has_not_while_an_answer_is_due() -> None:
    async with jobs_run() as it:
        first = task("a", 1, policies=[policy("PodFailed", "RestartTask", timeout="20s")])
        await it.let_in(first, task("b", 1, dependsOn={"name": ["a"]}))
        await it.pods_are("Failed", "j-a-0")
        assert await it.phase() == "Pending"
        await asyncio.sleep(20.0)
        assert (await it.status())["retryCount"] == 1
        await it.pods_are("Running", "j-a-0")
        assert "j-b-0" in await it.pods()


async def test_a_finished_job_is_deleted_after_its_time() -> None:
    async with jobs_run() as it:
        await _runs(it, ttlSecondsAfterFinished=30)
        await it.pods_are("Succeeded", *_ALL)
        # It is deleted in time although the time of its end is missing.
        await it.patch(f"{JOBS}/j/status", {"status": {"state": {"lastTransitionTime": None}}})
        await asyncio.sleep(20.0)
        assert "deletionTimestamp" not in (await it.get(f"{JOBS}/j"))["metadata"]
        await asyncio.sleep(10.0)
        assert "deletionTimestamp" in (await it.get(f"{JOBS}/j"))["metadata"]


async def test_a_plugin_that_there_is_not_holds_the_job_up_and_is_told() -> None:
    async with jobs_run() as it:
        await it.add_job(task("a", 1), plugins={"ssh": [], "magic": []})
        assert await it.notes() == ["unable to find job plugin: magic, ssh"]
        assert await it.items(GROUPS) == []


async def test_keys_are_made_once_and_hosts_follow() -> None:
    secret = "/api/v1/namespaces/default/secrets/j-ssh"
    async with jobs_run(ssh=True) as it:
        await it.let_in(task("a", 1), plugins={"ssh": []})
        before = (await it.get(secret))["data"]
        await it.kill(it.processes[-1])
        it.start(ssh=True)
        await it.patch(f"{JOBS}/j", {"spec": {"tasks": [task("a", 2)]}})
        await asyncio.sleep(REST)
        after = (await it.get(secret))["data"]
        assert after.pop("config") != before.pop("config")
        assert after == before
        assert sorted(await it.pods()) == ["j-a-0", "j-a-1"]


async def test_an_object_of_others_is_left_alone() -> None:
    async with jobs_run() as it:
        path = "/api/v1/namespaces/default/configmaps"
        await it.add(path, {"metadata": {"name": "j-svc"}, "data": {"of": "others"}})
        await it.add_job(task("a", 1), plugins={"svc": []})
        await it.ordered("AbortJob")
        assert (await it.get(f"{path}/j-svc"))["data"] == {"of": "others"}
        assert await it.pods() == {}


async def test_pods_of_an_earlier_job_of_the_name_are_not_taken_for_its_own() -> None:
    async with jobs_run() as it:
        await it.let_in(task("a", 1))
        await it.delete(f"{JOBS}/j")
        await it.ask("DELETE", f"{GROUPS}/{(await it.ask('GET', GROUPS))['items'][0]['metadata']['name']}")
        await it.let_in(task("a", 1))
        assert "pending" not in await it.status()
        await it.end_pod("j-a-0")
        await asyncio.sleep(60.0)
        assert (await it.status())["pending"] == 1


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": 5}},
        {"spec": {"containers": [{"name": "c", "env": {}}]}},
        {"metadata": {"labels": []}, "spec": {}},
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}},
    ],
    ids=str,
)
async def test_a_template_of_no_pod_is_told_and_ends_nothing(template: object) -> None:
    async with jobs_run() as it:
        await it.add_job({**task("a", 1), "template": template}, plugins={"env": [], "svc": []})
        if await it.items(GROUPS):
            await it.group_is("Inqueue")
        (note,) = await it.notes()
        assert note.startswith("invalid pod template: ")
        await it.patch(f"{JOBS}/j", {"spec": {"tasks": [task("a", 1)]}})
        await asyncio.sleep(REST)
        await it.group_is("Inqueue")
        assert sorted(await it.pods()) == ["j-a-0"]
