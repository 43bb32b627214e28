"""Completion as a shell does it."""

from __future__ import annotations

import subprocess

import pytest

from agent_scheduler.cli.main import main


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    text = f"{script}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_shtab_agent_scheduler\necho ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.split()


def test_bash_completes_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "agent-scheduler", "ex") == ["explain"]
    assert "--from-cluster" in completed(script, "agent-scheduler", "explain", "--fr")
    assert completed(script, "agent-scheduler", "nodes", "--sort-by", "c") == ["cpu"]
    for command in (("queues",), ("nodes",), ("shards",), ("job", "list")):
        assert completed(script, "agent-scheduler", *command, "-o", "") == ["table", "wide", "json", "yaml"]


def test_a_shell_that_there_is_no_script_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "cmd"])
    assert ended.value.code == 2
    assert "bash" in capsys.readouterr().err
