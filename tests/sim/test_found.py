"""Worlds in which a fault was found once, of the product or of who judges it, each with what it was."""

from __future__ import annotations

import pytest

from .world import Options, run

FOUND = [
    pytest.param(
        "preempting", 20831, id="a nomination outlives its victims when the answers to evictions are lost"
    ),
    pytest.param("devices", 45, id="the end of a nomination is not written when its patch is refused"),
    pytest.param("devices", 176, id="a nomination is seen after its pod was refused"),
    pytest.param("planned", 9500083, id="nodes are divided anew as pods are bound"),
    pytest.param(
        "planned", 9500227, id="a late deletion of a controller that is gone is judged by its successor"
    ),
    pytest.param(
        "churn", 1795379065434, id="how often pods were refused is told after the last of them was placed"
    ),
    pytest.param(
        "devices",
        1795379065979,
        id="a claim whose devices failed is not given back as something else of it changes meanwhile",
    ),
    pytest.param("constrained", 1795401599617, id="half of the refusal of a watch comes, and then nothing"),
    pytest.param(
        "sharded", 1795404438025, id="a bind of before its process knew that the store went back is late"
    ),
    pytest.param("preempting", 1795405458609, id="nothing is heard of a victim, as the watch is silent"),
    pytest.param("claims", 1795406031227, id="a process that stops finds that the store went back"),
    pytest.param(
        "replicas",
        1795406031999,
        id="a middlebox lets a patch through when another scheduler has bound the pod",
    ),
    pytest.param(
        "claims", 1795407213043, id="a process stands still while it lists, and the store goes back"
    ),
    pytest.param(
        "devices", 1795407212989, id="a claim is deleted whose reservation could not be taken back once"
    ),
    pytest.param("replicas", 1795408214702, id="a leader cannot list nodes, and pauses beyond its patience"),
    pytest.param(
        "planned", 1795409929491, id="a shard is made late that was made meanwhile and deleted by hand"
    ),
    pytest.param("constrained", 1795409930868, id="one host port of two addresses is for two pods"),
    pytest.param("planned", 1795401600171, id="only the version of the list of shards was asked for"),
    pytest.param(
        "planned", 1795404957076, id="a shard for which a write got no answer is to have what it has already"
    ),
    pytest.param("planned", 1795401601216, id="a shard is taken away while it is written and nobody answers"),
    pytest.param(
        "devices", 1795409929528, id="the write of a claim is undone by a restore that raises revisions"
    ),
    pytest.param(
        "devices",
        1795576537118,
        id="another allocator gives a device away that is in use, until the world rests",
    ),
    pytest.param(
        "gates",
        1795606476266,
        id="a pod without its gate waits for as much room as it has, beside its own",
    ),
    pytest.param(
        "gates",
        1795606476403,
        id="a member above the minimum is let past as the others are evicted",
    ),
    pytest.param(
        "gates",
        1795606476643,
        id="an autoscaler sees room for a gang whose members are placed one after another",
    ),
    pytest.param(
        "gates", 1795607376196, id="a condition is carried out late that another has followed long ago"
    ),
    pytest.param(
        "gates", 1795608175168, id="a queue is made smaller in which a pod has room that no node would take"
    ),
    pytest.param(
        "gates",
        83,
        id="a condition of a process that is gone is carried out late, and that of the next was its own",
    ),
    pytest.param("gates", 1795606476677, id="a process that ends is told an old state four times"),
    pytest.param(
        "gates",
        1795607044034,
        id="a pod is behind its gate again, and its scheduler has not seen that the store went back",
    ),
    pytest.param("devices", 1795576537243, id="a process finds the write of a claim undone after SIGTERM"),
    pytest.param(
        "replicas",
        1795576537742,
        id="a place is given away while a deletion for its pod waits for a connection",
    ),
    pytest.param(
        "replicas", 1795576538289, id="the only list of after a backup is cut before it reaches the process"
    ),
    pytest.param(
        "devices",
        1795579682897,
        id="a pod is refused while its claim whose devices failed is written for another",
    ),
    pytest.param(
        "mixed-batch",
        2568,
        id="a gang is evicted in two sessions, and what the first one decided on is not carried out yet",
    ),
    pytest.param(
        "preempting",
        1795579685428,
        id="a preemptor is deleted while the deletion of its victim waits for credentials",
    ),
    pytest.param(
        "mixed-batch", 1795596284191, id="the pod that others leave for goes while credentials come"
    ),
    pytest.param("mixed-batch", 5120, id="a node's room is kept for a pod whose queue is full"),
    pytest.param("mixed-batch", 1795595595093, id="a queue holds all that nodes offer, as one has shrunk"),
    pytest.param("batch", 1795595941275, id="a group is moved to another queue than its member names"),
    pytest.param("batch", 1795596623328, id="the status of a group is undone before the watch has shown it"),
    pytest.param("batch", 1795597283367, id="the status of a group is to become what it is"),
    pytest.param("batch", 1795595941123, id="the members of a gang run one after the other for minutes"),
    pytest.param("mixed-batch", 1795596284284, id="the server refuses to be told that a pod's queue is full"),
    pytest.param(
        "batch", 1795597934199, id="a gang loses its one member of a role and keeps as many as it needs"
    ),
    pytest.param("mixed-batch", 1795596284278, id="the node that others leave for a pod is made anew"),
    pytest.param(
        "mixed-batch", 39, id="a victim is made again before the request that deletes it is repeated"
    ),
    pytest.param("mixed-batch", 1795598222016, id="others fill the queue of a pod while room is made for it"),
    pytest.param(
        "mixed-batch",
        1795598757062,
        id="a group asks for more than its queue may hold, and would fit with less",
    ),
    pytest.param(
        "mixed-batch",
        1795600190017,
        id="a pod has ended before the write arrives that puts it into its group",
    ),
    pytest.param("gates", 1795613713766, id="the removal of a gate is refused while the process ends"),
    pytest.param(
        "gates", 1795614833206, id="a gang waits beside a member that is deleted and never had a node"
    ),
    pytest.param("gates", 1795614833458, id="room that is given back, again and again, lets others past"),
    pytest.param("gates", 1795614833486, id="who gave room back is held by the queue, too, and says so"),
    pytest.param("gates", 1795614833849, id="one that was let past has another gate after all"),
    pytest.param("gates", 1795704109273, id="a gang that wants nodes comes before another one of its queue"),
    pytest.param("gates", 1795703227583, id="others of a gang take the room of a member that was not bound"),
    pytest.param(
        "batch", 1795702633678, id="a new leader waits for a list whose answer is lost, and another fails"
    ),
    pytest.param(
        "batch", 1795702634504, id="the store goes back to before binds that the watch has not shown"
    ),
    pytest.param(
        "batch-claims", 1795705109121, id="a claim is left allocated by a member that was never written in it"
    ),
    pytest.param("batch-claims", 1795705109854, id="a claim that others took is written, and stays theirs"),
    pytest.param(
        "batch-claims", 1795705870344, id="a gang's devices are reserved, and its node is looked at again"
    ),
    pytest.param(
        "batch-claims", 1795705870714, id="the watch of a node's limits of volumes stalls from the beginning"
    ),
    pytest.param(
        "mixed-batch", 1795706306210, id="victims leave a node that has changed while nothing was heard"
    ),
    pytest.param(
        "mixed-batch", 1795706305448, id="a nomination is written late of a pod that waits for its queue"
    ),
    pytest.param(
        "batch-claims", 1795705871041, id="a gang waits for room that is about to be left, for ever"
    ),
    pytest.param("batch-claims", 1795705870697, id="a node goes whose pod waits for its claim"),
    pytest.param(
        "batch-claims", 1795705872119, id="a session tries a pod again whose claims are being taken back"
    ),
    pytest.param(
        "batch-claims", 1795708692140, id="a bound member is thought away, and taken back for a running one"
    ),
    pytest.param("gates", 5003240, id="a pod says that it wants a node, and others had gates that are off"),
    pytest.param(
        "gates", 5003298, id="another pod takes what was left in the queue of one that wants a node"
    ),
    pytest.param("gates", 5003273, id="the store goes back to before the parent of a queue was made again"),
    pytest.param("gates", 1795708693709, id="the status of a queue is written that is another one by now"),
    pytest.param("mixed-batch", 1795613714234, id="controllers sleep until the store has counted past them"),
    pytest.param("jobs", 1098, id="a pod of a job goes while no watch runs, before any has shown it"),
    pytest.param("jobs", 1248, id="a job is scaled while the answer to a write of its status is late"),
    pytest.param("jobs", 5088, id="a stage stands by whose first one is refused by its queue"),
    pytest.param("jobs", 141, id="a job is restarted while pods of its second stage still end"),
    pytest.param("jobs", 4774, id="a stage stands by alone, as any pod of the job is enough"),
    pytest.param(
        "jobs", 2472, id="a job goes and comes again, and its controller does not see that for long"
    ),
    pytest.param("jobs", 4004692, id="a later stage stands by with the room that the first one lacks"),
    pytest.param("gpus", 6000021, id="others bind a pod to the node that it was to have, and give it no GPU"),
    pytest.param("gpus", 6000098, id="a pod that others have bound keeps the GPUs that were chosen for it"),
    pytest.param("gpus-batch", 6000031, id="a gang is bound to a node without a GPU that is large enough"),
    pytest.param("gpus-batch", 6000038, id="a member counts twice on its GPU as its gang is bound"),
    pytest.param("jobs", 4002837, id="a new leader waits for a list of before it led, whose answer is late"),
    pytest.param("jobs", 4008547, id="a job has more pods in its first stage than its controller has seen"),
    pytest.param("jobs", 4006620, id="a gang whose bind was refused fits nowhere at first, and then it does"),
    pytest.param("jobs", 4100577, id="a job is resumed whose first stage had ended before it was aborted"),
    pytest.param(
        "gates-native",
        67,
        id="a pod of the fast path gives room back that a group of the other kind waits for",
    ),
    pytest.param("gates-native", 139, id="members of a gang hold more room than their queue has by then"),
    pytest.param("gates-native", 309, id="two conditions are carried out late, soon after one another"),
    pytest.param("gates-native", 163, id="members whose queue is full are beside some that have gates"),
]

#: With the faults that it takes.
FOUND_WITH = [
    pytest.param(
        "devices",
        706109,
        ("not_attached", "crash", "slow", "reload", "rolled_back"),
        id="two pods keep a claim for one another whose devices failed, after their scheduler was killed",
    ),
    pytest.param(
        "devices",
        706115,
        ("not_attached", "crash", "slow", "reload", "rolled_back"),
        id="the garbage collector takes the claims of pods that are told of anew as the store goes back",
    ),
    pytest.param(
        "devices",
        706150,
        ("not_attached", "crash", "slow", "reload", "rolled_back"),
        id="a claim is reserved for a pod whose profile was taken away",
    ),
    pytest.param(
        "sharded",
        706037,
        ("slow", "crash", "owner_gone", "lost_after", "rolled_back"),
        id="revisions are raised by a second restore before anybody has noticed the first",
    ),
    pytest.param(
        "preempting",
        90006,
        ("slow_credentials", "preemptor", "throttled"),
        id="a place is given away while a deletion for its pod waits for credentials",
    ),
    pytest.param(
        "jobs",
        4700187,
        ("failed", "lagging", "job_changed", "job_commanded", "pod_failed"),
        id="a pod of a later stage is made by a request that outlasts its job's restart",
    ),
    pytest.param(
        "jobs",
        4700296,
        ("failed", "lagging", "job_changed", "job_commanded", "pod_failed"),
        id="the first stage of a job has failed, and a later one keeps its room",
    ),
    pytest.param(
        "mixed-batch",
        121,
        ("crash", "denied"),
        id="a member's condition is refused, and said again when it is tried again",
    ),
    pytest.param(
        "gates-shards",
        53,
        ("lease", "failed", "lost_before", "slow", "held_back", "webhook_down"),
        id="the removal of a gate is repeated when it is another process's turn",
    ),
]


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_a_world_that_failed_once_breaks_no_promise(scenario: str, seed: int) -> None:
    assert run(Options(seed=seed, scenario=scenario)).violations == []


@pytest.mark.parametrize(("scenario", "seed", "faults"), FOUND_WITH)
def test_a_world_that_failed_once_with_these_faults_breaks_no_promise(
    scenario: str, seed: int, faults: tuple[str, ...]
) -> None:
    assert run(Options(seed=seed, scenario=scenario, faults=faults)).violations == []


def test_a_world_whose_processes_speak_http_is_the_same_each_time() -> None:
    """All connections of a process end at once as the store goes back, and each end has consequences."""
    options = Options(seed=700226, scenario="sharded")
    assert len({run(options).digest for _ in range(3)}) == 1
