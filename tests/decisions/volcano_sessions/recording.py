"""Volcano's recorded sessions: clusters, configurations and the decisions of its batch scheduler."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
import yaml

from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from tests.support.needed import recorded_cases

Obj = dict[str, Any]


class Case(msgspec.Struct, frozen=True, dict=True):
    id: str
    scenario: str
    config: str
    sessions: int
    input: Obj
    expected: Obj
    feature_gates: dict[str, bool] | None = msgspec.field(name="featureGates", default=None)
    #: Paths that differed between Volcano's own runs, and are missing in `expected`.
    unstable: list[str] | None = None

    @cached_property
    def conf(self) -> SessionConf:
        return conf_of(self.config, self.feature_gates or {})


def read_cases() -> list[Case]:
    """Return the cases of the file that the environment names, or of those beside the checkout."""
    names = ("volcano-sessions/cases.jsonl.gz", "volcano-sessions/cases-2.jsonl.gz")
    return msgspec.convert(recorded_cases("AGENT_SCHEDULER_VOLCANO_SESSIONS", *names), list[Case])


def conf_of(text: str, gates: dict[str, bool]) -> SessionConf:
    """Return the configuration of Volcano's own file."""
    raw = yaml.safe_load(text)
    return SessionConf(
        actions=tuple(name.strip() for name in raw["actions"].split(",")),
        tiers=tuple(tuple(_option(option) for option in tier["plugins"]) for tier in raw["tiers"]),
        configurations={each["name"]: each.get("arguments") or {} for each in raw.get("configurations") or ()},
        features=frozenset(name for name, on in gates.items() if on),
    )


def _option(raw: Obj) -> PluginOption:
    switches = {key: value for key, value in raw.items() if isinstance(value, bool)}
    return PluginOption(raw["name"], raw.get("arguments") or {}, switches)
