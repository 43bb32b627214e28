"""Commands of other distributions are listed everywhere, and say what to install where they are missing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from typing import NoReturn

import pytest

from agent_scheduler.cli import main as cli
from agent_scheduler.cli.main import main

FOREIGN = [("bench", "agent-scheduler-bench"), ("cluster", "embedded-kubernetes"), ("demo", "agent-scheduler-bench")]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler without the other distributions, in a working directory that has a folder `bench`."""

    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, None, is_package=True) if name == "bench" else None

    monkeypatch.setattr(cli, "find_spec", find_spec)


@pytest.mark.parametrize(("command", "distribution"), FOREIGN)
@pytest.mark.usefixtures("alone")
def test_a_command_that_is_missing_says_what_to_install(
    command: str, distribution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--any", "thing"]) == 1
    said = capsys.readouterr().err
    assert f"needs {distribution}, which is not installed" in said
    assert f"pip install 'agent-scheduler[{command}]'" in said


@pytest.mark.parametrize("line", ["demo", "demo --story gates", "demo --help", "demo --no-such"])
def test_a_missing_library_of_a_command_says_what_to_install(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> NoReturn:
        raise ModuleNotFoundError("No module named 'rich'", name="rich")

    monkeypatch.setattr(cli, "import_module", missing)
    assert main(line.split()) == 1
    told = "needs rich, which is not installed; install it with: pip install 'agent-scheduler[demo]'\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.usefixtures("alone")
def test_the_list_of_commands_names_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(f"(pip install {distribution})" in said for _, distribution in FOREIGN)


@pytest.mark.parametrize(("command", "distribution"), FOREIGN)
def test_a_command_that_is_installed_appears_with_its_flags(
    command: str, distribution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: agent-scheduler {command}" in capsys.readouterr().out


def test_looking_for_a_command_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.find_spec is importlib.util.find_spec
    for name in [each for each in sys.modules if each.partition(".")[0] in ("bench", "embedded_kubernetes")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert {"bench", "embedded_kubernetes"}.isdisjoint(sys.modules)


@pytest.mark.parametrize("line", ["top", "nodes --help", "run", "cluster", "demo"])
def test_an_interrupt_while_modules_load_is_exit_code_130(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert main(line.split()) == 130
    assert capsys.readouterr() == ("", "")
