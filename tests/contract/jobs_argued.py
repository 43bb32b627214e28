"""Compares a state with the recorded one, except for intended differences (decision 0045).

Each rule is a function that changes the recorded state into what it would be with that one difference, or leaves it
unchanged where the difference does not show. A rule never removes a value from the comparison without a replacement,
except for numbers in which Volcano's own runs differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final

from agent_scheduler.objects.batch import ATTAINABLE, GROUP_NAME, WAITING_ROLES

State = dict[str, Any]
#: The codes of a step's operations, and then the state.
Taken = tuple[list[int], State]

COUNTS: Final = ("pending", "running", "succeeded", "failed", "unknown", "terminating")
_PHASES: Final = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}
_VERSION: Final = "volcano.sh/job-version"
_OUTSIDE: Final = ("", "Pending")


def named(body: State) -> str:
    return str(body.get("metadata", {}).get("name", ""))


class Argued:
    """The comparison of one scenario. `used` are the rules that were needed."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        #: The compared step.
        self.number = 0
        self.used: set[str] = set()
        #: Pods that Volcano has created and that are not created here yet.
        self.early: set[str] = set()

    @property
    def step(self) -> State:
        return self.scenario["steps"][self.number]  # type: ignore[no-any-return]

    @property
    def past(self) -> list[State]:
        """Return the operations up to this step."""
        return [op for step in self.scenario["steps"][: self.number + 1] for op in step["ops"]]

    def made(self, kind: str) -> list[State]:
        """Return the scenario's objects of a kind, as it creates them."""
        ops = (op for step in self.scenario["steps"] for op in step["ops"])
        return [op["object"] for op in ops if op.get("object", {}).get("kind") == kind]

    @property
    def job(self) -> State:
        """Return the spec of its Job as it was first created."""
        return next((each["spec"] for each in self.made("Job")), {})

    @property
    def tasks(self) -> list[State]:
        return self.job.get("tasks", [])  # type: ignore[no-any-return]

    @property
    def dependent(self) -> set[str]:
        """Return the tasks that wait for others."""
        return {task["name"] for task in self.tasks if task.get("dependsOn")}

    def replicas(self, name: str) -> int:
        """Return the last replicas of a workload; 0 of a Job."""
        ops = [op for step in self.scenario["steps"][: self.number + 1] for op in step["ops"]]
        bodies = [op.get("object") or op.get("patch", {}) for op in ops]
        of_it = (each for op, each in zip(ops, bodies, strict=True) if name == op.get("name", named(each)))
        said = [each["spec"]["replicas"] for each in of_it if "replicas" in each.get("spec", {})]
        return int(said[-1]) if said else 0

    def compare(self, number: int, recorded: Taken, found: Taken) -> list[str]:
        """Return the differences at a step."""
        self.number = number
        if reason := _incomparable(self):
            self.used.add(reason)
            return []
        (codes, expected), (found_codes, state) = recorded, found
        _skip_racy(expected, state)
        codes = self._codes(codes, found_codes, expected)
        texts = [] if codes == found_codes else [f"codes {codes} expected, {found_codes} found"]
        for rule in RULES:
            if not difference(expected, state):
                break
            changed = copy.deepcopy(expected)
            rule(self, changed, state)
            if changed != expected:
                self.used.add(rule.__name__)
            expected = changed
        texts += difference(expected, state)
        if texts and (unstable := self.scenario.get("unstable", {}).get(str(number))):
            # Two runs of Volcano differ here.
            self.used.add("unstable")
            places = [place.removeprefix("/state").replace("/", ".") for place in unstable]
            if any(place.split(".")[1] in ("jobs", "pods", "podgroups") for place in places):
                # All differences in the same Job, or of its objects, may be a consequence.
                return []
            return [text for text in texts if not text.startswith(tuple(places))]
        return texts

    def _codes(self, codes: list[int], found: list[int], expected: State) -> list[int]:
        """Return Volcano's codes, with 404 for a status of a pod already deleted, if it is gone there and here."""
        changed = list(codes)
        for index, op in enumerate(self.step["ops"]):
            is_late = op["op"] == "pod_status" and op["name"] not in expected["pods"]
            if is_late and len(codes) > 1 and (codes[index], found[index]) == (200, 404):
                changed[index] = 404
                self.used.add(what_was_sent_at_once_is_seen_at_once.__name__)
        return changed


def _skip_racy(expected: State, found: State) -> None:
    """Remove versions that are random according to the recorder."""
    for name, job in expected["jobs"].items():
        if job["status"].get("version") == "<racy>":
            del job["status"]["version"]
            job["status"] |= {key: each for key, each in _status(found, name).items() if key == "version"}


def _incomparable(argued: Argued) -> str:
    """Return why the rest of a scenario is not compared; empty if it is."""
    ops = argued.past
    if any(op.get("object", {}).get("kind") == "ResourceQuota" for op in ops) and argued.number > 1:
        return "the_embedded_server_enforces_no_quota"
    policies = (each for of in (argued.job, *argued.tasks) for each in of.get("policies") or ())
    is_waited = any(op["op"] == "wait" and op["seconds"] > 2 for op in ops)
    if is_waited and any(each.get("timeout") for each in policies):
        return "a_timeout_is_carried_out"
    volumes = argued.job.get("volumes", ())
    if any(not each.get("volumeClaim") and not each.get("volumeClaimName") for each in volumes):
        return "a_volume_of_nothing_makes_no_group"
    return ""


def _is_let_in(state: State, job: str) -> bool:
    for group in state["podgroups"].values():
        owners = group["metadata"]["ownerReferences"]
        if any((owner["kind"], owner["name"]) == ("Job", job) for owner in owners):
            return group["status"].get("phase", "") not in _OUTSIDE
    return False


def _copy(kind: str, names: Iterable[str], found: State, into: State) -> None:
    """Copy the found objects of a kind with these names into another state."""
    into[kind] |= {name: copy.deepcopy(found[kind][name]) for name in names}


def _status(state: State, job: str) -> State:
    return state["jobs"].get(job, {}).get("status", {})  # type: ignore[no-any-return]


def _pods_of(state: State, job: str) -> dict[str, State]:
    return {
        name: pod
        for name, pod in state["pods"].items()
        if any(owner["name"] == job for owner in pod["metadata"]["ownerReferences"])
    }


def no_pod_before_the_group_is_let_in(argued: Argued, expected: State, found: State) -> None:
    """After a restart Volcano creates a pod by the old group. Here it waits for the new one."""
    for job in expected["jobs"]:
        pods = _pods_of(expected, job)
        if not _is_let_in(expected, job) and expected["jobs"][job]["status"].get("retryCount"):
            for name, pod in pods.items():
                made = pod["metadata"]["annotations"].get(_VERSION)
                if name not in found["pods"] and pod["phase"] == "Pending" and made != "0":
                    argued.early.add(name)
                    del expected["pods"][name]
        else:
            for name in argued.early & pods.keys():
                argued.early.discard(name)
                if pods[name]["incarnation"] == "same":
                    pods[name]["incarnation"] = "new"


def a_restart_goes_on_once_its_pods_are_gone(argued: Argued, expected: State, found: State) -> None:
    """Volcano uses the counts at the start of the restart, until the new group is admitted."""
    for name, job in expected["jobs"].items():
        status, other = job["status"], _status(found, name)
        phases = status.get("state", {}).get("phase"), other.get("state", {}).get("phase")
        is_gone = not any(pod["deleting"] for pod in _pods_of(expected, name).values())
        if phases == ("Restarting", "Pending") and is_gone:
            status["state"]["phase"] = "Pending"
            conditions = [each for each in status["conditions"] if each != "Pending"]
            status["conditions"] = [*conditions, "Pending"]


def what_was_sent_at_once_is_seen_at_once(argued: Argued, expected: State, found: State) -> None:
    """Volcano acts on the first of several changes before it observes the next, and deletes pods that end meanwhile."""
    ended = {
        op["name"]
        for op in argued.step["ops"]
        if op["op"] == "pod_status" and op["status"].get("phase") in ("Succeeded", "Failed")
    }
    phases = set(map(_phase, expected["jobs"].values()))
    if len(argued.step["ops"]) > 1 and not phases <= {"Pending", "Running", "Restarting"}:
        _copy("pods", (ended & found["pods"].keys()) - expected["pods"].keys(), found, expected)


def no_pod_is_made_for_a_job_that_ends(argued: Argued, expected: State, found: State) -> None:
    """If a policy ends a Job when a pod is deleted, Volcano may create that pod again first, with the Job Pending."""
    deleted = any(op["op"] == "delete" and op["kind"] == "Pod" for op in argued.past)
    for job in expected["jobs"].values():
        conditions = job["status"].get("conditions", [])
        if deleted and conditions[:2] == ["Running", "Pending"] and conditions[2:3] not in ([], ["Running"]):
            job["status"]["conditions"] = ["Pending", "Running", *conditions[2:]]


def ssh_is_told_of_scaled_tasks(argued: Argued, expected: State, found: State) -> None:
    """Volcano writes hosts into the Secret of the plugin ssh once."""
    for name, secret in expected["secrets"].items():
        lines, others = (set(each.get("config", "").splitlines()) for each in (secret, found["secrets"].get(name, {})))
        if any(op["op"] == "patch" and op["kind"] == "Job" for op in argued.past) and (
            lines < others or others < lines
        ):
            secret["config"] = found["secrets"][name].get("config", "")


def a_group_is_made_again(argued: Argued, expected: State, found: State) -> None:
    """Volcano waits for a change of the Job, or for the next pod of another workload, although pods exist."""
    more = found["podgroups"].keys() - expected["podgroups"].keys()
    if any(op["op"] == "delete" and op["kind"] == "PodGroup" for op in argued.step["ops"]):
        _copy("podgroups", [each for each in more if not found["podgroups"][each]["status"]], found, expected)
    there = {pod["metadata"]["annotations"].get(GROUP_NAME) for pod in found["pods"].values()}
    for name in more & there:
        (owner,) = found["podgroups"][name]["metadata"]["ownerReferences"]
        if argued.replicas(owner["name"]):
            _copy("podgroups", [name], found, expected)


def a_name_that_is_taken_is_told_and_tried_again(argued: Argued, expected: State, found: State) -> None:
    """Volcano treats another owner's pod as its own, and creates none when that is gone."""
    others = {each["metadata"]["name"] for each in argued.made("Pod")}
    if lacking := (others & found["pods"].keys()) - expected["pods"].keys():
        _copy("pods", lacking, found, expected)
        for job in expected["jobs"]:
            _count(expected, job)
    if others:
        told = [each for each in found["events"] if each[2] == "FailedCreate" and "already exists" in each[3]]
        expected["events"] = sorted([*expected["events"], *told])


def who_waits_is_told(argued: Argued, expected: State, found: State) -> None:
    """Volcano does not report which task waits for which."""
    for name, job in expected["jobs"].items():
        state = _status(found, name).get("state", {})
        pods = _pods_of(expected, name).values()
        absent = argued.dependent - {pod["metadata"]["labels"].get("volcano.sh/task-spec") for pod in pods}
        told = {text.partition(" ")[0] for text in state.get("message", "").split("; ")}
        if state.get("reason") == "TasksWaiting" and told <= absent:
            job["status"]["state"] |= {"reason": state["reason"], "message": state["message"]}


def a_group_names_the_roles_that_wait(argued: Argued, expected: State, found: State) -> None:
    """Name the roles that wait, or have failed: a scheduler of Volcano cannot know why those members are missing."""
    has_failed = any(pod["phase"] == "Failed" for pod in expected["pods"].values())
    for name, group in expected["podgroups"].items():
        own = found["podgroups"].get(name, {}).get("metadata", {}).get("annotations", {})
        if (said := own.get(WAITING_ROLES)) and argued.dependent.issuperset(said.split(",")):
            group["metadata"]["annotations"][WAITING_ROLES] = said
        if ATTAINABLE in own and has_failed:
            group["metadata"]["annotations"][ATTAINABLE] = own[ATTAINABLE]


def an_action_about_no_partition_is_none(argued: Argued, expected: State, found: State) -> None:
    """Volcano treats RestartPartition of a task without partitions as done, and does not check the pods."""
    if "RestartPartition" in str(argued.job) and not all(each.get("partitionPolicy") for each in argued.tasks):
        for name, job in expected["jobs"].items():
            _count(expected, name)
            ended = all(pod["phase"] == "Succeeded" for pod in _pods_of(expected, name).values())
            if ended and job["status"]["state"]["phase"] == "Running":
                job["status"]["state"]["phase"] = "Completed"
                job["status"]["conditions"].append("Completed")
                expected["podgroups"] = {}


def numbers_are_those_of_the_pods(argued: Argued, expected: State, found: State) -> None:
    """Volcano clears the counts when a Job ends, and does not update them while a group is not admitted."""
    for name, job in expected["jobs"].items():
        status = job["status"]
        if _phase(job) in ("Pending", "Running") and _is_let_in(expected, name):
            continue
        _count(expected, name)
        if status and job["spec"]["minAvailable"]:
            status["minAvailable"] = job["spec"]["minAvailable"]


def a_generated_name_of_a_claim_is_told_in_the_status(argued: Argued, expected: State, found: State) -> None:
    """Volcano writes it into the Job's spec. Here it follows from the Job."""
    for name, job in expected["jobs"].items():
        for index, volume in enumerate(job["spec"].get("volumes", ())):
            others = found["jobs"].get(name, {}).get("spec", {}).get("volumes", ())
            is_told = index < len(others) and "volumeClaimName" in others[index]
            if "<rand" in volume.get("volumeClaimName", "") and not is_told:
                del volume["volumeClaimName"]


def a_claim_is_mounted_at_all_its_paths(argued: Argued, expected: State, found: State) -> None:
    """Volcano drops all but the first."""
    paths: dict[str, list[str]] = {}
    for volume in argued.job.get("volumes", ()):
        paths.setdefault(volume.get("volumeClaimName", ""), []).append(volume["mountPath"])
    for pod in expected["pods"].values():
        for container in pod["spec"]["containers"]:
            mounts = container.get("volumeMounts", [])
            for each in [each for name, each in paths.items() if name and len(each) > 1]:
                first = next((mount for mount in mounts if mount["mountPath"] == each[0]), None)
                mounts += [{**first, "mountPath": path} for path in each[1:] if first is not None]


def a_restart_keeps_what_plugins_made(argued: Argued, expected: State, found: State) -> None:
    """Volcano deletes it and creates a part of it again."""
    if any(_phase(job) in ("Restarting", "Pending") for job in expected["jobs"].values()):
        for kind in ("services", "networkpolicies", "secrets", "configmaps"):
            _copy(kind, found[kind].keys() - expected[kind].keys(), found, expected)


def _phase(job: State) -> Any:
    return job["status"].get("state", {}).get("phase")


def _count(expected: State, name: str) -> None:
    """Set a Job's counts to those of its pods."""
    if status := expected["jobs"][name]["status"]:
        for key in (*COUNTS, "taskStatusCount"):
            status.pop(key, None)
        for pod in _pods_of(expected, name).values():
            if pod["deleting"]:
                status["terminating"] = status.get("terminating", 0) + 1
                continue
            field = _PHASES.get(pod["phase"], "unknown")
            status[field] = status.get(field, 0) + 1
            task = pod["metadata"]["annotations"]["volcano.sh/task-spec"]
            phases = status.setdefault("taskStatusCount", {}).setdefault(task, {"phase": {}})["phase"]
            phases[pod["phase"]] = phases.get(pod["phase"], 0) + 1


def a_version_is_counted_once_a_change(argued: Argued, expected: State, found: State) -> None:
    """Volcano increments it with every late event. Only its presence is compared."""
    for name, job in expected["jobs"].items():
        other = _status(found, name)
        if "version" in job["status"]:
            job["status"]["version"] = other.get("version", 1)
    for name, pod in expected["pods"].items():
        annotations = pod["metadata"]["annotations"]
        made = found["pods"].get(name, {}).get("metadata", {}).get("annotations", {}).get(_VERSION)
        if annotations.get(_VERSION, "0") != "0" and made not in (None, "0"):
            annotations[_VERSION] = made


Rule = Callable[[Argued, State, State], None]
RULES: Final[tuple[Rule, ...]] = (
    no_pod_before_the_group_is_let_in,
    a_restart_goes_on_once_its_pods_are_gone,
    what_was_sent_at_once_is_seen_at_once,
    no_pod_is_made_for_a_job_that_ends,
    ssh_is_told_of_scaled_tasks,
    a_group_is_made_again,
    a_name_that_is_taken_is_told_and_tried_again,
    who_waits_is_told,
    a_group_names_the_roles_that_wait,
    an_action_about_no_partition_is_none,
    a_generated_name_of_a_claim_is_told_in_the_status,
    a_claim_is_mounted_at_all_its_paths,
    a_restart_keeps_what_plugins_made,
    numbers_are_those_of_the_pods,
    a_version_is_counted_once_a_change,
)


def difference(expected: Any, found: Any, where: str = "") -> list[str]:
    """Return the differences, one text per place."""
    if isinstance(expected, dict) and isinstance(found, dict):
        texts = []
        for key in sorted({*expected, *found}):
            place = f"{where}.{key}"
            if key not in expected:
                texts.append(f"{place}: not expected: {found[key]!r}")
            elif key not in found:
                texts.append(f"{place}: missing: {expected[key]!r}")
            else:
                texts += difference(expected[key], found[key], place)
        return texts
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            text
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for text in difference(one, other, f"{where}[{index}]")
        ]
    return [] if expected == found else [f"{where}: {expected!r} expected, {found!r} found"]
