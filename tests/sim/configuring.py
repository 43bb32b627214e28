"""The configuration file that all processes of a world read while they run, and what is written into it.

A process that starts finds the last valid content: a client that starts one with an invalid file notices the failed
start, and restores the file.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

from agent_scheduler.config.load import ConfigurationSource, Texts
from agent_scheduler.config.schema import Configuration

from .api import Json
from .device_load import TIMEOUT
from .kinds import Shape
from .rules import OPTIONAL
from .scenarios import in_one_line
from .shard_load import FENCE, LEASE_NAMESPACE

FILE = "scheduler.yaml"
#: The schedulerName of a world's only scheduler, and of a profile that is added and removed.
ALONE = "agent-scheduler"
OTHER = "agent-other"
#: Contents that a running process cannot apply, each for another reason.
_UNUSABLE: tuple[Callable[[str], str], ...] = (
    lambda text: text + "profiles: [{schedulerName: x}]\n",
    lambda text: text[: len(text) // 2] + "\n: [",
    lambda text: text.replace("workerCount: ", "workerCount: 1"),
    lambda text: text.replace("candidateNodeCount: ", "candidateNodeCount: -"),
    lambda text: text.replace(
        "profiles: [", "profiles: [{schedulerName: x, plugins: {filter: {enabled: [{name: NoSuchPlugin}]}}}, "
    ),
    lambda _text: "",
)


def names_of(scheduler: str) -> tuple[str, str]:
    """Return the schedulerNames of all profiles that a scheduler ever has."""
    return (scheduler, OTHER if scheduler == ALONE else f"{scheduler}-other")


class File:
    """The file's current content and its last valid content, for the only scheduler. Files of several are alike."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._more = ""
        if shape.devices is not None and shape.devices.attached:
            self._more = f"{{name: DynamicResources, args: {{bindingTimeout: {TIMEOUT:g}s}}}}"
        self._scores = "" if shape.gpus is None else shape.gpus.scores
        settings = _plain_settings(self._more, self._scores, shape.shipped)
        self.valid = self.text = shape.configuration() + settings

    def change(self, rng: random.Random) -> None:
        """Write another valid content."""
        policy = rng.choice(("revalidate", "strict"))
        settings = _settings(rng, self._more, self._scores)
        self.valid = self.text = self._shape.configuration(policy=policy) + settings

    def spoil(self, rng: random.Random) -> None:
        """Write a content that must be rejected."""
        self.text = rng.choice(_UNUSABLE)(self.valid)

    def restore(self) -> None:
        self.text = self.valid

    def source(self, scheduler: str) -> _Source:
        return _Source(self, scheduler)

    def of(self, scheduler: str, text: str) -> str:
        """Return the content of a scheduler's file if that of the only scheduler were `text`."""
        if scheduler == ALONE or self._shape.shards is None:
            return text
        for mine, its in zip(names_of(ALONE), names_of(scheduler), strict=True):
            text = text.replace(f"schedulerName: {mine}", f"schedulerName: {its}")
        if self._shape.shards.batch not in ("", scheduler):
            lines = text.splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith("batch:"))
        sharding = (
            f"sharding: {{mode: {self._shape.shards.modes[scheduler]}, name: {scheduler}, "
            f"leaseNamespace: {LEASE_NAMESPACE}, fencePeriod: {FENCE:g}s}}\n"
        )
        return text.replace("serving:", f"{sharding}serving:", 1)


class _Source(ConfigurationSource):
    """The file as one process reads it."""

    def __init__(self, file: File, scheduler: str) -> None:
        super().__init__(argparse.Namespace(config=FILE), environ={})
        self._text = file
        self._scheduler = scheduler

    def texts(self) -> Texts:
        return Texts(self._text.of(self._scheduler, self._text.text))

    def valid(self) -> str:
        return self._text.of(self._scheduler, self._text.valid)

    def start(self) -> Configuration:
        """Return the configuration with which a process starts."""
        return self.load(Texts(self.valid()))


def ask_for_more(shape: Shape, rng: random.Random) -> None:
    """Give some of the pods a profile, or a node, that exists only in some configurations."""
    for _at, pod in shape.pods:
        spec = pod["spec"]
        chance = rng.random()
        if chance < 0.15:
            _, spec["schedulerName"] = names_of(spec["schedulerName"])
        elif chance < 0.3 and "volumes" not in spec:
            spec["nodeSelector"] = {"example.com/there": "is-none"}


def _plain_settings(more: str, ranked_by: str, shipped: Json) -> str:
    """Return the initial content of the part of a configuration that may change while a process runs.

    `more`: a plugin's configuration; `ranked_by`: entries of additional scores; `shipped`: the installed file's
    content.
    """
    ranks = f"plugins: {{score: {{enabled: [{ranked_by}]}}}}, " if ranked_by else ""
    (plain,) = shipped.get("profiles", [{"schedulerName": ALONE}])
    profile = f"{{{in_one_line(plain)[1:-1]}, {ranks}pluginConfig: [{more}]}}"
    return f"candidateNodeCount: {shipped.get('candidateNodeCount', 3)}\nprofiles: [{profile}]\n"


def _settings(rng: random.Random, more: str, ranked_by: str) -> str:
    off = [name for name in OPTIONAL if rng.random() < 0.3]
    scores = rng.choice(("LeastAllocated", "MostAllocated"))
    plugins = [f"filter: {{disabled: [{', '.join(f'{{name: {name}}}' for name in off)}]}}"]
    if rng.random() < 0.25:
        plugins.append("postFilter: {disabled: [{name: DefaultPreemption}]}")
    enabled = [ranked_by] if ranked_by and rng.random() < 0.7 else []
    if rng.random() < 0.4:
        weight = rng.randrange(1, 50)
        enabled.append(f"{{name: NodeResourcesBalancedAllocation, weight: {weight}}}")
    if enabled:
        plugins.append(f"score: {{enabled: [{', '.join(enabled)}]}}")
    profile = (
        f"plugins: {{{', '.join(plugins)}}}, pluginConfig: [{{name: NodeResourcesFit, "
        f"args: {{scoringStrategy: {{type: {scores}}}}}}}{', ' if more else ''}{more}]"
    )
    names = ["agent-scheduler", *([OTHER] if rng.random() < 0.5 else [])]
    profiles = ", ".join(f"{{schedulerName: {name}, {profile}}}" for name in names)
    return (
        f"candidateNodeCount: {rng.randrange(1, 5)}\nmaxUrgentRetries: {rng.randrange(6)}\n"
        f"podMaxBackoffSeconds: {rng.choice((2, 10))}\nprofiles: [{profiles}]\n"
    )
