"""Plugins of other distributions: the one that docs/plugins.md shows, installed, and all that can be wrong with one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.engine.framework.plugin import Depends, Filter, Profile, Score
from agent_scheduler.engine.framework.registration import Registration
from agent_scheduler.engine.profiles.guard import PluginError, guarded
from tests.support.command_line import HEADER, problem
from tests.support.embedded import NODES, embedded_cluster, until
from tests.support.objects import container, node
from tests.support.places import DOCS
from tests.support.running import scheduling

PAGE = DOCS / "plugins.md"
ENABLED = HEADER + "profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {}}}]}}}}}}]\n"

Install = Callable[..., None]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install(module, code, entry points as text)`: puts a distribution where this process finds it."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules: list[str] = []

    def put(module: str, code: str | None, entries: str, *, dist: str = "") -> None:
        dist = dist or module.replace("_", "-")
        if code is not None:
            (site / f"{module}.py").write_text(code)
        info = site / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entries)
        modules.append(module)

    yield put
    for module in modules:
        sys.modules.pop(module, None)


def entry(name: str, value: str) -> str:
    return f"[agent_scheduler.plugins]\n{name} = {value}\n"


def refusal(text: str) -> str:
    return problem(load_text, text, source="scheduler.yaml")


async def told(profile: Profile, *nodes: str) -> tuple[dict[str, Any], list[Exception]]:
    """What is said to a pod of a cluster with these nodes, and the failures of decisions."""
    async with embedded_cluster() as cluster, scheduling(cluster.transport, profiles=(profile,)) as running:
        for name in nodes:
            await cluster.add_node(name)
        await cluster.add_pod("a")
        return await until(lambda: cluster.condition("a")), running.reports.failures


@pytest.fixture
def documented(install: Install) -> str:
    """Installs what the page shows, exactly; the configuration that it shows."""
    toml = block("toml")
    declared = re.search(r'^\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"\n$', toml)
    assert declared
    group, name, value = declared.groups()
    install("gpu_nodes", block("python"), f"[{group}]\n{name} = {value}\n")
    return block("yaml")


def the_profile(text: str) -> Profile:
    return build_profiles(load_text(text))["agent-scheduler"]


async def test_the_plugin_that_the_page_shows_is_short_and_decides(documented: str) -> None:
    assert len(block("python").splitlines()) < 40
    accelerator = {"example.com/accelerator": "4"}
    profile = the_profile(documented)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, profiles=(profile,)) as running:
        await cluster.add(NODES, node("with", extended=accelerator))
        await cluster.add_pod("plain")
        condition = await until(lambda: cluster.condition("plain"))
        assert condition["message"].startswith("0/1 nodes are available: 1 node(s) were kept for pods with GPUs.")
        learner = container(requests=accelerator, limits=accelerator)
        await cluster.add_pod("learner", containers=[learner])
        await until(cluster.placed)
        assert await cluster.placed() == {"learner": "with"}
        await cluster.add_node("without")
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.placed() == {"learner": "with", "plain": "without"}
        assert running.reports.counts["after flush"] == 0
        assert running.reports.failures == []


def test_what_the_page_says_of_a_module_that_is_not_there_is_what_is_said(install: Install) -> None:
    install("gpu_nodes", None, entry("GpuNodes", "gpu_nodes:registration"))
    shown = re.search(r"```text\n(.*)\n```", PAGE.read_text())
    assert shown
    text = (
        "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nprofiles:\n- plugins:\n    multiPoint:\n"
        "      enabled:\n      - {name: GpuNodes}\n"
    )
    assert refusal(text) == shown[1]


# ---- what can be wrong with one

HEAD = "from agent_scheduler.plugin import *\nimport numpy as np\n"
PLAIN = (
    HEAD
    + """
class Mine(Filter):
    name = "Mine"
    depends = Depends.USAGE
    def __init__(self, args): pass
    def prepare(self, pod, handle): return self
    def feasible(self, state, nodes, rows): return np.ones(len(rows), dtype=bool)
    def reasons(self, state, nodes, rows): return {}
registration = Registration("Mine", {"filter": Mine})
"""
)
ALL = "np.ones(len(rows), dtype=bool)"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("pass", "cannot be loaded: AttributeError: module 'mine' has no attribute 'registration'"),
        ("registration = 3", "mine:registration is a int; allowed: an agent_scheduler.plugin.Registration"),
        (PLAIN.replace('Registration("Mine"', 'Registration("Yours"'), "its registration is called 'Yours'"),
        (PLAIN.replace('"filter"', '"filters"'), "points ['filters']; allowed: at least one of preEnqueue"),
        (PLAIN.replace("args): pass", "args): raise OSError('full')"), "cannot be made: OSError: full"),
        (PLAIN.replace('name = "Mine"', 'name = "Yours"'), "its attribute name is 'Yours'"),
        (PLAIN.replace("Mine(Filter)", "Mine"), "has no curable, which filter needs; derive it from Filter"),
        (PLAIN.replace("    depends", "    other"), "has no depends, which filter needs"),
    ],
)
def test_a_configuration_with_a_broken_plugin_is_refused(install: Install, code: str, expected: str) -> None:
    install("mine", code, entry("Mine", "mine:registration"))
    text = refusal(ENABLED.format("Mine"))
    assert text.startswith("scheduler.yaml:3: profiles[0]")
    assert "lugin Mine (from mine 1.0, mine:registration)" in text or "plugin 'Mine'" in text
    assert expected in text


def test_two_distributions_with_one_name_are_told_apart(install: Install) -> None:
    install("mine", PLAIN, entry("Mine", "mine:registration"))
    install("other", PLAIN, entry("Mine", "other:registration"))
    assert "plugin Mine is provided by both" in refusal(ENABLED.format("Mine"))


def test_a_broken_plugin_that_no_profile_names_breaks_nothing(install: Install) -> None:
    install("mine", "raise SystemExit", entry("Mine", "mine:registration"))
    load_text(HEADER)


def test_a_plugin_that_is_not_enabled_may_be_configured_with_a_warning(install: Install) -> None:
    install("mine", PLAIN, entry("Mine", "mine:registration"))
    told: list[str] = []
    load_text(HEADER + "profiles: [{pluginConfig: [{name: Mine}]}]", source="f", warn=told.append)
    assert told == ["f:3: profiles[0].pluginConfig[0].name: has no effect: the profile does not enable Mine"]


def test_a_mistyped_name_is_told_with_the_plugins_that_are_installed(install: Install) -> None:
    install("mine", PLAIN, entry("MineOwn", "mine:registration"))
    assert "found 'MineOwm'; did you mean MineOwn? allowed: BestFit" in refusal(ENABLED.format("MineOwm"))


def test_arguments_of_a_plugin_are_checked_by_its_struct(install: Install) -> None:
    code = PLAIN.replace(
        "class Mine",
        "class Args(PluginArgs, frozen=True, kw_only=True):\n    min_size: int = 1\n\n"
        "    def __post_init__(self):\n        if self.min_size > 9: raise ArgsError(('minSize',), 'is too much')\n"
        "class Mine",
    ).replace("Mine})", "Mine}, Args)")
    install("mine", code, entry("Mine", "mine:registration"))
    text = ENABLED.format("Mine").replace("}]}}}]", "}]}}, pluginConfig: [{name: Mine, args: {%s}}]}]")
    load_text(text % "minSize: 9")
    assert "args.minSize: is too much" in refusal(text % "minSize: 10")
    assert "args.minSize: found 'x'; allowed: a whole number" in refusal(text % "minSize: x")
    assert "args.size: unknown key; allowed: minSize" in refusal(text % "size: 1")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"return {ALL}", "raise KeyError('x')", "feasible raised KeyError: 'x'"),
        (ALL, "np.ones(len(rows) + 1, dtype=bool)", "feasible answered an array"),
        (ALL, "np.ones(len(rows))", "one bool for each of 1 rows"),
        (ALL, "True", "feasible answered a bool; allowed"),
        ("self, pod, handle): return self", "self, pod): return self", "prepare raised TypeError"),
    ],
)
async def test_a_plugin_that_fails_in_a_decision_is_named_to_the_pod(
    install: Install, old: str, new: str, expected: str
) -> None:
    install("mine", PLAIN.replace(old, new), entry("Mine", "mine:registration"))
    condition, failures = await told(the_profile(ENABLED.format("Mine")), "n1")
    assert condition["reason"] == "SchedulerError"
    assert "PluginError: plugin Mine (from mine 1.0, mine:registration): " in condition["message"]
    assert expected in condition["message"]
    assert isinstance(failures[0], PluginError)


@pytest.mark.parametrize(
    ("point", "answer", "expected"),
    [
        ("score", 101, "score_row answered 101; allowed: 0 to 100"),
        ("score", 0.5, "score_row answered 0.5; allowed: one int"),
        ("score", True, "score_row answered True; allowed: one int"),
        ("filter", 1, "feasible_row answered 1; allowed: one bool"),
    ],
)
def test_an_answer_about_one_row_is_judged_as_about_many(point: str, answer: object, expected: str) -> None:
    base, method = {"score": (Score, "score_row"), "filter": (Filter, "feasible_row")}[point]
    asked = {"name": "Mine", "depends": Depends.USAGE, "normalize": None, method: lambda *_: answer}
    mine = type("Mine", (base,), asked)
    plugin = guarded(mine(), Registration("Mine", {point: mine}))
    with pytest.raises(PluginError, match=re.escape(expected)):
        getattr(plugin, method)(None, None, 0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("np.full(len(rows), 101)", "score answered 101 to 101; allowed: 0 to 100"),
        ("np.full(len(rows), 0.5)", "score answered an array of float64"),
        ("np.full(len(rows), 1, dtype=bool)", "score answered an array of bool"),
    ],
)
async def test_a_score_of_another_kind_is_refused(install: Install, answer: str, expected: str) -> None:
    code = f"""
class Mine(Score):
    name = "Mine"
    depends = Depends.USAGE
    normalize = None
    def __init__(self, args): pass
    def prepare(self, pod, handle): return self
    def score(self, state, nodes, rows): return {answer}
registration = Registration("Mine", {{"score": Mine}})
"""
    install("mine", HEAD + code, entry("Mine", "mine:registration"))
    condition, _ = await told(the_profile(ENABLED.format("Mine")), "n1", "n2")
    assert expected in condition["message"]
