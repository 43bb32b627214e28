"""Each command in the documentation is valid: its flags are parsed, and what it names exists.

tests/pages types those that can run here.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from agent_scheduler.cli.main import _parser
from agent_scheduler.config.load import ConfigurationSource
from apimachinery.errors import ConfigurationError
from embedded_kubernetes import command as embedded_command
from tests.support.documents import PAGES, Command, blocks, commands, split
from tests.support.kustomize import render
from tests.support.places import ROOT, SOURCES

#: Only the first word of these commands is checked.
_PLAIN = ("kill", "export", "echo", "sed", "rm", "sleep", "test", "jobs", "ln", "which")
_VERBS = frozenset(
    "apply auth create delete edit get label patch port-forward rollout run wait".split()  # noqa: SIM905
)
#: Commands whose second word has its own flags.
_NESTED = ("bench",)
#: Folders whose files are named by their paths.
_FOLDERS = ("config/", "docs/", "packages/", "src/", "tests/", "requirements/")


def _program(command: Command) -> str:
    words = command.words[1:]
    if command.spoken:
        told = _told(words[0], "--help")
        if told is None:
            return f"no command {words[0]}"
        if words[0] in _NESTED and len(words) > 1:
            told = _told(*words[:2], "--help") or ""
        flags = set(re.findall(r"--[a-z_-]+", told))
        given = [word for word in words[1:] if word.startswith("--")]
        missing = [word for word in given if word.partition("=")[0] not in flags]
        return f"has no {', '.join(missing)}" if missing else ""
    if _told(*words) is None:
        return "not understood by the program's own parser"
    return _run(words) if words[0] == "run" else ""


def _run(words: tuple[str, ...]) -> str:
    """Return the error of a flag's value; a file outside the project is not checked."""
    arguments = _parser().parse_args(words)
    for name in ("config", "scheduler_conf"):
        file = getattr(arguments, name)
        setattr(arguments, name, ROOT / file if file and (ROOT / file).exists() else None)
    try:
        ConfigurationSource(arguments).load()
    except ConfigurationError as error:
        return str(error)
    return ""


def _told(*words: str) -> str | None:
    """Return what the parser prints while it parses these words; None if it rejects them."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            _parser().parse_args(words)
    except SystemExit as end:
        return out.getvalue() if end.code in (0, None) else None
    return out.getvalue()


def _embedded(command: Command) -> str:
    arguments = ["--faults", "FILE"] if command.spoken and command.words[1:2] == ("--faults",) else command.words[1:]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            embedded_command.parser().parse_args(arguments)
    except SystemExit as end:
        return "" if end.code in (0, None) else "not understood by the program's own parser"
    return ""


def _kubectl(command: Command) -> str:
    words = command.words
    if words[1:2] == ("agent-scheduler",):
        return _program(Command(words[1:]))
    if not any(word in _VERBS for word in words):
        return "no verb of kubectl's"
    for flag, value in pairwise(words):
        if flag == "-k" and not _rendered(value):
            return f"{value} renders nothing"
        if flag == "-f" and value == "-":
            for each in yaml.safe_load_all(command.stdin):
                if not {"apiVersion", "kind", "metadata"} <= each.keys():
                    return f"not an object: {each}"
    return ""


@cache
def _rendered(folder: str) -> int:
    return len(render(ROOT / folder))


def _make(command: Command) -> str:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in command.words[1:]:
        variable, equals, value = word.partition("=")
        if not equals:
            if word not in targets:
                return f"no target {word}"
        elif variable not in (ROOT / "Makefile").read_text():
            return f"no variable {variable}"
        elif variable == "DEMO_ARGS":
            return _program(Command(("agent-scheduler", "demo", *shlex.split(value))))
        elif variable == "BENCH_ARGS":
            return _python(Command(("python", "-m", "bench", *shlex.split(value))))
    return ""


def _python(command: Command) -> str:
    if command.words[1:2] != ("-m",):
        return "not a module"
    module, *arguments = command.words[2:]
    if module in sys.stdlib_module_names:
        return ""
    paths = [folder / module.replace(".", "/") for folder in (ROOT, *SOURCES)]
    if not any(path.with_suffix(".py").exists() or (path / "__main__.py").exists() for path in paths):
        return f"there is no module {module}"
    if module in ("bench", "bench.scenarios"):
        try:
            import_module(f"{module}.__main__").parser().parse_args(arguments)
        except SystemExit:
            return f"not understood by the parser of {module}"
    return ""


def _docker(command: Command) -> str:
    return "" if command.words[1] in ("build", "push") and (ROOT / "Dockerfile").exists() else "unknown"


def _pip(command: Command) -> str:
    """Check distributions of this repository, by name or by folder, each with its extras."""
    projects = {}
    for folder in (source.parent for source in SOURCES):
        about = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        extras = set(about.get("optional-dependencies", ()))
        projects |= {about["name"]: extras, str(folder.relative_to(ROOT)): extras}
    asked = [word for word in command.words[2:] if not word.startswith("-")]
    for word in asked:
        name, _, chosen = word.removesuffix("]").partition("[")
        if name not in projects:
            return f"{name} is no distribution of this repository"
        if unknown := sorted(set(filter(None, chosen.split(","))) - projects[name]):
            return f"{name} has no extra {', '.join(unknown)}"
    return "" if asked else "installs nothing"


def _helm(command: Command) -> str:
    """Check values of the chart, whose schema rejects unknown ones; without helm."""
    words = command.words
    if words[1] not in ("install", "upgrade", "rollback", "uninstall"):
        return "no verb of helm's"
    chart = ROOT / "config" / "helm" / "agent-scheduler"
    schema = json.loads((chart / "values.schema.json").read_text())
    for flag, text in pairwise(words):
        for name in (each.partition("=")[0] for each in text.split(",")) if flag.startswith("--set") else ():
            known = schema
            for step in name.split("."):
                closed = known.get("additionalProperties") is False
                if closed and step not in known.get("properties", {}):
                    return f"the chart has no value {name}"
                known = known.get("properties", {}).get(step, {})
    return ""


_CHECKS: Mapping[str, Callable[[Command], str]] = {
    "agent-scheduler": _program,
    "embedded-kubernetes": _embedded,
    "kubectl": _kubectl,
    "make": _make,
    "python": _python,
    "python3": _python,
    "helm": _helm,
    "docker": _docker,
    "pip": _pip,
}


def problem(command: Command) -> str:
    """Return the error of a command; empty if there is none."""
    name = command.words[0].removeprefix(".venv/bin/")
    if name not in _CHECKS and name not in _PLAIN:
        return "no test knows this command"
    for word in command.words:
        if word.startswith(_FOLDERS) and not (ROOT / word).exists():
            return f"there is no {word}"
    return _CHECKS[name](command) if name in _CHECKS else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_can_be_given(page: Path) -> None:
    found = [f"{where} {command}\n{why}" for where, command in commands(page) if (why := problem(command))]
    assert found == [], "\n\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"`((?:bench|config|docs|packages|src|tests|requirements)/[\w./-]+)`", page.read_text())
    # Relative to the page's folder, too, like links; and as ARCHITECTURE.md names files of the package.
    folders = (ROOT, page.parent, page.parent.parent, ROOT / "src" / "agent_scheduler")
    missing = [name for name in named if not any((folder / name).exists() for folder in folders)]
    assert [name for name in missing if not re.search(r"\b(NN|NAME)\b", name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_block_is_of_a_language_that_is_looked_into(page: Path) -> None:
    known = {"console", "json", "python", "sh", "text", "toml", "yaml"}
    assert {block.language for block, _ in blocks(page)} <= known


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("agent-scheduler run --no-such-flag", "not understood"),
        ("agent-scheduler run --scheduler-sharding-mode=hrad", "did you mean hard?"),
        ("agent-scheduler demo --nodes many", "not understood"),
        ("kubectl apply -f config/samples/none.yaml", "there is no config/samples/none.yaml"),
        ("kubectl reconsider pods", "no verb"),
        ("kubectl create -f - <<EOF\n{kind: Pod}\nEOF", "not an object"),
        ('make demo DEMO_ARGS="--nodes many"', "not understood"),
        ("make tea", "no target tea"),
        ("python -m bench --only", "not understood"),
        ("python -m bench.none", "there is no module"),
        ("pip install 'agent-scheduler[none]'", "no extra"),
        ("pip install -e packages/none", "there is no packages/none"),
        ("pip install -e bench -e docs", "no distribution"),
        ("helm upgrade it --set no.such=1", "the chart has no value no.such"),
        ("brew tea", "no test knows"),
        ("echo | agent-scheduler job --none", "not understood"),
        ('echo "$(agent-scheduler job --none)"', "not understood"),
    ],
)
def test_what_cannot_be_given_is_told(line: str, why: str) -> None:
    assert why in next(found for command in split(line) if (found := problem(command)))
