"""Volcano's sessions as they were recorded: clusters, configurations and what its batch scheduler decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from tests.support.needed import recorded_cases

Obj = dict[str, Any]


@dataclass(frozen=True)
class Case:
    id: str
    scenario: str
    conf: SessionConf
    sessions: int
    input: Obj
    expected: list[Obj]
    #: Paths of what differed between runs of Volcano's own, and is missing in `expected`.
    unstable: tuple[str, ...] = ()
    questionable: frozenset[str] = field(default_factory=frozenset)


def read_cases() -> list[Case]:
    """Those of the file that the environment names, or of the one beside the checkout."""
    return [
        _case(each)
        for each in recorded_cases("AGENT_SCHEDULER_VOLCANO_SESSIONS", "volcano-sessions/cases.jsonl.gz")
    ]


def _case(raw: Obj) -> Case:
    return Case(
        id=raw["id"],
        scenario=raw["scenario"],
        conf=conf_of(raw["config"], raw.get("featureGates") or {}),
        sessions=raw["sessions"],
        input=raw["input"],
        expected=raw["expected"]["sessions"],
        unstable=tuple(raw.get("unstable") or ()),
        questionable=frozenset(raw.get("questionable") or ()),
    )


def conf_of(text: str, gates: dict[str, bool]) -> SessionConf:
    """Of Volcano's own file."""
    raw = yaml.safe_load(text)
    return SessionConf(
        actions=tuple(name.strip() for name in raw["actions"].split(",")),
        tiers=tuple(tuple(_option(option) for option in tier["plugins"]) for tier in raw["tiers"]),
        configurations={
            each["name"]: each.get("arguments") or {} for each in raw.get("configurations") or ()
        },
        features=frozenset(name for name, on in gates.items() if on),
    )


def _option(raw: Obj) -> PluginOption:
    switches = {key: value for key, value in raw.items() if isinstance(value, bool)}
    return PluginOption(raw["name"], raw.get("arguments") or {}, switches)
