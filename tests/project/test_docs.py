"""The documentation agrees with the code, as far as a test can compare them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_scheduler.cli import controllers as controlling
from agent_scheduler.cli import shards as shardmap
from agent_scheduler.cli import webhook as admission
from agent_scheduler.config.flags import FLAGS, add_run_arguments
from agent_scheduler.config.kube_scheduler import FOREIGN, REFUSED, TRANSLATED
from agent_scheduler.config.load import load_text, to_dict
from agent_scheduler.config.reload import CHANGEABLE
from agent_scheduler.config.schema import FEATURE_GATES, Configuration, Plugins
from agent_scheduler.config.sharding import ShardingFile, load_sharding
from agent_scheduler.engine.framework import args
from agent_scheduler.engine.shards.settings import POLICIES
from agent_scheduler.telemetry.batch import BatchMetrics
from agent_scheduler.telemetry.controllers import ControllersMetrics
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.webhook import RESULTS, WebhookMetrics
from apimachinery.codec import encode, fields
from tests.support.places import DOCS, ROOT


class BesideBatch(Metrics):
    """The metrics of a scheduler and of a batch scheduler."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        BatchMetrics(self.families)


#: The metrics of each kind of process.
PROCESSES = (BesideBatch, ControllersMetrics, WebhookMetrics)


def rows(page: str, columns: int, title: str = "# ") -> list[list[str]]:
    """Return the cells of all table rows with this number of columns in a section."""
    lines = (line for line in section(page, title) if line.startswith("| `"))
    found = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [cells for cells in found if len(cells) == columns]


def section(page: str, title: str) -> list[str]:
    """Return the lines from a title with this prefix to the next of its level or above."""
    lines = (DOCS / page).read_text().splitlines()
    begin = next(at for at, line in enumerate(lines, 1) if line.startswith(title))
    level = len(title.partition(" ")[0])
    ends = (at for at in range(begin, len(lines)) if re.match(rf"#{{1,{level}}} ", lines[at]))
    return lines[begin : next(ends, len(lines))]


def flags_of(add: Callable[[argparse.ArgumentParser], object]) -> set[str]:
    parser = argparse.ArgumentParser(add_help=False)
    add(parser)
    return {name for action in parser._actions for name in action.option_strings}


def test_every_metric_is_documented_with_its_type_and_labels_and_no_other() -> None:
    documented = {
        cells[0].strip("`"): (cells[1], tuple(re.findall(r"`([^`]+)`", cells[2]))) for cells in rows("metrics.md", 4)
    }
    exposed = {
        name: (family.type, family.label_names)
        for metrics in PROCESSES
        for name, family in metrics(version="1").families.made.items()
    }
    assert documented == exposed


def test_one_metric_is_the_same_wherever_it_is_exposed() -> None:
    """A metric of two processes has one meaning, and so one type and one set of labels."""
    common = set(ProcessMetrics(version="1").families.made)
    own = [set(each(version="1").families.made) for each in (Metrics, ControllersMetrics, WebhookMetrics)]
    assert all(one & other == common for one, other in combinations(own, 2))
    meanings: dict[str, set[tuple[str, str, tuple[str, ...]]]] = {}
    for metrics in PROCESSES:
        for name, family in metrics(version="1").families.made.items():
            meanings.setdefault(name, set()).add((family.type, family.help, family.label_names))
    assert [name for name, each in meanings.items() if len(each) > 1] == []


@pytest.mark.parametrize("page", ["operations.md", "concepts.md", "gates.md", "comparison.md"])
def test_metrics_that_a_page_names_exist(page: str) -> None:
    name = r"`((?:agent_scheduler|scheduler|leader|volcano)_[a-z_]+[a-z])\b"
    names = set(re.findall(name, (DOCS / page).read_text()))
    made = {name for metrics in PROCESSES for name in metrics(version="1").families.made}
    # A key of the page /debug/explain.
    assert {name.removesuffix("_bucket") for name in names} - made <= {"scheduler_name"}


def settings(cls: type[msgspec.Struct], at: str = "") -> set[str]:
    """Return the path of every setting that is not a section itself; a list is `[]`."""
    paths: set[str] = set()
    for key, kind in fields(cls).items():
        path = f"{at}.{key}" if at else key
        if isinstance(kind, msgspec.inspect.Metadata):
            kind = kind.type
        if isinstance(kind, msgspec.inspect.UnionType):
            # An optional section.
            kind = next((each for each in kind.types if isinstance(each, msgspec.inspect.StructType)), kind)
        if isinstance(kind, msgspec.inspect.VarTupleType):
            path, kind = f"{path}[]", kind.item_type
        if isinstance(kind, msgspec.inspect.StructType):
            paths |= settings(kind.cls, path)
        else:
            paths.add(path)
    return paths


def test_every_setting_is_documented_and_no_other() -> None:
    documented = {cells[0].strip("`") for cells in rows("configuration.md", 3, "## Settings")}
    # All extension points have the same lists; the page describes them once.
    expected = {re.sub(r"plugins\.[a-zA-Z]+\.", "plugins.POINT.", path) for path in settings(Configuration)}
    assert documented - {"batch", "batch.tiers", "batch.configurations"} == {
        path for path in expected if not path.startswith(("batch.tiers", "batch.configurations"))
    }


def test_documented_defaults_are_the_defaults() -> None:
    shown = to_dict(load_text("{apiVersion: agent-scheduler/v1, kind: SchedulerConfiguration, batch: {}}"))
    checked = 0
    for path, default, _ in rows("configuration.md", 3, "## Settings"):
        words = re.findall(r"^`([^`]*)`$", default)
        if not words or "[]" in path:
            continue
        value = shown
        for step in path.strip("`").split("."):
            value = value[step]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert text.removesuffix(".0") == words[0], path
        checked += 1
    assert checked > 20


def test_every_flag_and_gate_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    flags = [*(name for flag in FLAGS for name in flag.names), *(name for flag in TRANSLATED for name in flag.names)]
    for name in (*FEATURE_GATES, *flags):
        assert f"`{name}`" in text
    refused = section("migration-from-kube-scheduler.md", "### Flags that are refused")
    read = {"--tls-cert-file", "--tls-private-key-file"}
    assert set(re.findall(r"`(--[a-z0-9-]+)`", "".join(refused))) - read == REFUSED.keys()


COMMANDS = {
    "run": add_run_arguments, "controllers": controlling.add_arguments, "webhook": admission.add_arguments,
}  # fmt: skip
#: Tables of another program's flags: the page, the section, and the command here.
SIDE_BY_SIDE = (
    ("migration-from-kube-scheduler.md", "## Flags side by side", "run"),
    ("migration-from-volcano.md", "## Scheduler", "run"),
    ("migration-from-volcano.md", "## Agent scheduler", "run"),
    ("migration-from-volcano.md", "## Controllers", "controllers"),
    ("migration-from-volcano.md", "## Webhook", "webhook"),
)


@pytest.mark.parametrize(("page", "title", "command"), SIDE_BY_SIDE)
def test_flags_of_others_are_what_the_page_says_here(page: str, title: str, command: str) -> None:
    known = flags_of(COMMANDS[command]) - REFUSED.keys()
    checked = 0
    for theirs, here, _ in rows(page, 3, title):
        flags = re.findall(r"`(-[^`]*)`", theirs)
        if not flags:
            continue
        ours = flags if here == "the same" else re.findall(r"`(-[^`]*)`", here)
        assert set(ours) <= known, theirs
        if here == "refused":
            assert not known & set(flags), theirs
        else:
            assert ours or here.startswith("`"), f"{theirs}: {here!r} says nothing of what there is here"
        checked += 1
    assert checked > 3


def test_every_flag_of_controllers_and_shards_is_documented() -> None:
    text = "".join((DOCS / f"{page}.md").read_text() for page in ("controllers", "sharding"))
    for name in flags_of(controlling.add_arguments) | flags_of(shardmap.add_arguments):
        assert f"`{name}" in text, name


def test_every_flag_and_path_of_the_webhook_is_documented_and_no_other() -> None:
    text = (DOCS / "webhook.md").read_text()
    told = "".join(cells[0] for cells in rows("webhook.md", 2, "## Flags"))
    assert set(re.findall(r"`(--[a-z-]+)`", told)) == flags_of(admission.add_arguments)
    source = (ROOT / "src" / "agent_scheduler" / "process" / "webhook.py").read_text()
    paths = set(re.findall(r'"(/[a-z]+/[a-z]+)": _Path', source))
    assert paths
    assert paths == set(re.findall(r"^\| `(/[a-z]+/[a-z]+)` \|", text, re.MULTILINE))


def test_every_result_of_a_review_is_documented() -> None:
    (cells,) = (each for each in rows("metrics.md", 4) if "webhook_reviews_total" in each[0])
    assert set(re.findall(r"`([a-z_]+)`", cells[3])) == set(RESULTS)


def test_every_setting_of_a_sharding_file_is_documented_with_its_default_and_no_other() -> None:
    documented = {cells[0].strip("`") for cells in rows("sharding.md", 3, "## Planning shards")}
    arguments = {f"{name}: {key}" for name, cls in POLICIES.items() for key in fields(cls)}
    assert documented == settings(ShardingFile) | arguments


def test_the_sharding_files_that_the_page_shows_are_accepted() -> None:
    text = (DOCS / "sharding.md").read_text().split("## Planning shards", 1)[1]
    blocks = re.findall(r"```yaml\n(schedulerConfigs:.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        assert load_sharding(block, source="docs/sharding.md").warnings == ()


def test_settings_that_may_change_while_it_runs_are_documented_and_no_other() -> None:
    text = (DOCS / "configuration.md").read_text()
    sentence = re.search(r"These may change: (.*?)\. A change of anything else", text, re.DOTALL)
    assert sentence
    assert set(re.findall(r"`([^`]+)`", sentence[1])) == CHANGEABLE


def test_every_extension_point_and_foreign_key_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    for point in fields(Plugins):
        assert f"`{point}`" in text
    told = {
        name.strip("`").rpartition(".")[2]: how.split()[0]
        for name, how, _ in rows("migration-from-kube-scheduler.md", 3, "## Its file")
    }
    keys = [each for keys in FOREIGN.values() for each in keys.items()]
    assert told == {key: "refused" if how.refused else "read" for key, how in keys}


def test_arguments_of_plugins_are_documented_with_their_defaults() -> None:
    documented = {
        (cells[0].strip("`"), cells[1].strip("`")): cells[2] for cells in rows("configuration.md", 4, "## Arguments")
    }
    expected: dict[tuple[str, str], Any] = {}
    for cls in vars(args).values():
        if isinstance(cls, type) and issubclass(cls, args.PluginArgs) and cls.__name__.endswith("Args"):
            shown = encode(cls())
            expected |= {(cls.__name__.removesuffix("Args"), key): shown[key] for key in fields(cls)}
    expected = {key: value for key, value in expected.items() if key[0] != "Plugin"}
    assert set(documented) == set(expected)
    for key, cell in documented.items():
        plain = re.findall(r"^`([^`]*)`$", cell)
        if plain:
            value = expected[key]
            assert plain[0] == (str(value).lower() if isinstance(value, bool) else str(value)), key


def test_the_configuration_that_pages_show_is_accepted() -> None:
    for page in ("configuration.md", "migration-from-volcano.md"):
        blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
        assert blocks
        for block in blocks:
            load_text(block, source=page)


def test_the_error_that_the_page_shows_is_the_error_that_is_given() -> None:
    text = (DOCS / "configuration.md").read_text()
    found = re.search(r"```text\n(scheduler\.yaml:.*)\n```", text)
    assert found
    with pytest.raises(ValueError) as caught:
        load_text(
            "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nprofiles:\n- pluginConfig:\n"
            "  - name: NodeResourcesFit\n    args:\n      scoringStrategy: {type: MostAlocated}\n",
            source="scheduler.yaml",
        )
    assert str(caught.value) == found[1]


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    for target, title in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), target
            assert not title or path.suffix != ".md" or title in titles(path), f"{target}#{title}"


@cache
def titles(page: Path) -> set[str]:
    """Return the page's titles in the form that links use."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_pages_of_the_server_are_documented() -> None:
    source = (ROOT / "src" / "agent_scheduler" / "serving" / "pages.py").read_text()
    served = re.findall(r'add_get\("(/[^"{]+)"', source)
    text = (DOCS / "operations.md").read_text()
    for path in (*served, "/healthz", "/livez", "/readyz"):
        assert f"`{path}`" in text


def test_pages_have_all_pictures_which_are_small_and_need_nothing_else() -> None:
    used: set[Path] = set()
    for page in (ROOT / "README.md", ROOT / "bench" / "README.md", *DOCS.rglob("*.md")):
        text = page.read_text()
        names = re.findall(
            r"!\[[^\]]+\]\(([^)#:]+)\)|<img src=\"([^\"]+)\"[^>]* alt=\"[^\"]+\"|srcset=\"([^\"]+)\"", text
        )
        assert len(names) == len(re.findall(r"!\[|<img|srcset", text)), page
        used |= {(page.parent / "".join(each)).resolve() for each in names}
    pictures = set((DOCS / "images").iterdir())
    assert used >= pictures
    for picture in used:
        content = picture.read_bytes()
        assert len(content) < 300_000, picture
        if picture.suffix == ".svg":
            # GitHub removes scripts, and displays nothing that other hosts have.
            assert not re.findall(rb"<script|\son\w+=|url\(http|href=\"http|@import", content), picture
    # A recording also has a meaning where nothing moves.
    recording = (DOCS / "images" / "session.svg").read_text()
    assert "@media(prefers-reduced-motion:reduce){.strip{animation:none}}" in recording
    assert re.search(r"\.strip\{transform:translateX\(-[1-9][\d.]*px\);animation", recording)
