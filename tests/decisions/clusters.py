"""Random clusters with a pod that waits, as the API server would have them.

There are few values to choose from, so that they often match: a taint and its toleration, a term and a pod with that
label, two equal ports. A case concerns few subjects (`SUBJECTS`), because a pod with all constraints fits nowhere; some
cases concern all of them. `test_random.py` counts that every rule decides some case.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.decisions import podparts
from tests.decisions.drawing import Choices, Draw
from tests.decisions.plain import Obj, World
from tests.decisions.podparts import HOST, ZONE

MOST_NODES, MOST_PODS = 12, 25

SUBJECTS = ("room", "ports", "nodes", "taints", "pods", "spread", "images", "priority")
#: Subjects of one case. The first is the simplest.
ABOUT = (
    *((subject,) for subject in SUBJECTS),
    ("room", "priority"),
    ("spread", "images"),
    ("spread", "taints"),
    ("room", "nodes", "taints", "images"),
    ("pods", "spread", "nodes"),
    ("ports", "pods", "priority"),
    SUBJECTS,
)

NAMESPACES = {"default": {}, "blue": {"team": "x"}, "red": {"team": "y", "tier": "t"}}


class Drawn(NamedTuple):
    """A cluster, a pod that waits in it, and the disruption budgets."""

    world: World
    pending: Obj
    budgets: tuple[Obj, ...] = ()


def cluster(draw: Draw) -> Drawn:
    """Return the case of the bytes that `draw` returns; any bytes are a case.

    Each part begins with bytes of its own, so that one that shrinks leaves the others as they are.
    """
    choices = Choices(draw)
    return drawn_about(frozenset(choices.pick(ABOUT)), choices, draw)


def drawn_about(about: frozenset[str], choices: Choices, draw: Draw) -> Drawn:
    """Return a case about some subjects; `choices` are for the cluster as a whole."""
    # Few nodes are more frequent than many.
    count = 1 + choices.below(7 if choices.below(2) else MOST_NODES)
    most = choices.pick((0, 2, 4, 6, 8, 10, 12, MOST_PODS))
    if "priority" in about or "spread" in about:  # which take a crowd
        most = 2 * choices.below(MOST_NODES)
    pods = most // 2 + choices.below(most // 2 + 1)
    pending = podparts.pending(Choices(draw), about)
    nodes = tuple(node(Choices(draw), f"n{number}", about) for number in range(count))
    placed = tuple(podparts.placed(Choices(draw), f"p{number}", count, about) for number in range(pods))
    budgets = range(choices.below(3)) if "priority" in about else ()
    covered = tuple(podparts.budget(Choices(draw), f"b{number}") for number in budgets)
    return Drawn(World(nodes, placed, NAMESPACES), pending, covered)


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    return cluster(lambda length: draw(st.binary(min_size=length, max_size=length)))


_CPU = ("4", "2", "8", "1500m", "0.5", "1e1", "3.25", "16")
_MEMORY = ("8Gi", "4Gi", "1.5Gi", "16e9", "500M", "3000000Ki", "2147483648", "0.25Ti")
_PODS = ("110", "110", "110", "110", "10", "5", "3", "0")
TAINTS = (
    {"key": "soft", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
    {"key": "gen", "value": "5", "effect": "PreferNoSchedule"},
    {"key": "hard", "value": "1", "effect": "NoSchedule"},
    {"key": "gen", "value": "5", "effect": "NoSchedule"},
    {"key": "gone", "effect": "NoExecute"},
)
IMAGES = (
    ("small", "small:latest", 20 * 2**20),
    ("a:v1", "a:v1", 400 * 2**20),
    ("registry:5000/b", "registry:5000/b:latest", 1500 * 2**20),
    ("c@sha256:0f", "c@sha256:0f", 90 * 2**20),
)


def node(choices: Choices, called: str, about: frozenset[str]) -> dict[str, Any]:
    labels = {HOST: called, "disk": choices.pick(("ssd", "hdd")), "gen": choices.pick(podparts.GENERATIONS)}
    zone = choices.pick(("z1", "z2", "z1", "z2", "z3", ""))
    if zone:
        labels[ZONE] = zone
    if choices.once_in(16):
        labels[HOST] = "n0"
    elif choices.once_in(24):
        del labels[HOST]
    spec: dict[str, Any] = {}
    if "taints" in about:
        taints = [choices.pick(TAINTS) for _ in range(choices.pick((0, 0, 1, 1, 2, 3)))]
        # The API server demands one taint for each key and effect.
        spec["taints"] = list({(taint["key"], taint["effect"]): taint for taint in taints}.values())
    if choices.once_in(6 if "taints" in about else 20):
        spec["unschedulable"] = True
    status: dict[str, Any] = {"allocatable": _allocatable(choices, about)}
    if "images" in about:
        status["images"] = [
            {"names": [reported, f"{reported.partition('@')[0]}@sha256:{'e' * 8}"], "sizeBytes": size}
            for _, reported, size in IMAGES
            if choices.below(2)
        ]
    return {"metadata": {"name": called, "labels": labels}, "spec": spec, "status": status}


def _allocatable(choices: Choices, about: frozenset[str]) -> dict[str, str]:
    among = {"cpu": _CPU, "memory": _MEMORY, "pods": _PODS}
    if "room" not in about:
        among |= {"cpu": ("4", "8"), "memory": ("8Gi", "16Gi")}
        if "priority" in about:  # little room, so that pods must be evicted
            among = {"cpu": ("1", "1500m"), "memory": ("1Gi", "2Gi"), "pods": ("3", "2", "110", "1")}
    offers = {resource: choices.pick(amounts) for resource, amounts in among.items()}
    if "room" not in about:
        return offers
    for resource in podparts.OTHER_RESOURCES:
        if choices.below(2):
            offers[resource] = choices.pick(podparts.OTHER_AMOUNTS)
    if choices.once_in(16):
        del offers[choices.pick(("cpu", "memory", "pods"))]
    return offers
