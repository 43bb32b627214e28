"""What commands print for programs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.cli import outputs
from agent_scheduler.cli.outputs import complain, dumped, show
from agent_scheduler.cli.tables import table


def test_keys_keep_their_order_and_letters_are_written_as_they_are() -> None:
    shown = {"b": "ä→", "a": [1, None]}
    assert dumped(shown, "json") == '{\n "b": "ä→",\n "a": [\n  1,\n  null\n ]\n}\n'
    assert dumped(shown, "yaml") == "b: ä→\na:\n- 1\n- null\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_is_nested_too_deeply_is_one_line(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown: dict[str, Any] = {}
    for _ in range(2_000):
        shown = {"a": shown}
    with pytest.raises(SystemExit) as ended:
        dumped(shown, output)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "agent-scheduler output: the object is nested too deeply to be printed\n"


HOSTILE = "a\x1b[2J\x9b1m\x7f\u202eb\n\tc\u2028d"


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same_values_without_a_character_that_a_terminal_obeys(
    output: str, read: Callable[[str], Any]
) -> None:
    shown = {"b": [HOSTILE, "ä→"], HOSTILE: 1}
    text = dumped(shown, output)
    assert read(text) == shown
    assert all(line.isprintable() for line in text.split("\n"))


def test_tables_lines_and_problems_have_no_such_character_and_no_forged_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(table(("A", "B"), [(HOSTILE, 1)]))
    show(f"x {HOSTILE}\n")
    complain("job", ValueError(HOSTILE))
    out, err = capsys.readouterr()
    assert out == (
        "A                                       B\n"
        "a\\x1b[2J\\x9b1m\\x7f\\u202eb\\n\\tc\\u2028d   1\n"
        "x a\\x1b[2J\\x9b1m\\x7f\\u202eb\n\\tc\\u2028d\n"
    )
    assert err == "agent-scheduler job: a\\x1b[2J\\x9b1m\\x7f\\u202eb c d\n"


def test_a_long_cell_does_not_widen_its_column_without_limit() -> None:
    _, first, second = table(("A", "B"), [("x" * 1_000_000, 1), ("y", 2)]).splitlines()
    assert first == f"{'x' * 256}...   1"
    assert len(second) == len(first)


def test_only_the_terminal_codes_that_are_meant_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show("\x1b[1mhead\x1b[0m\x1b[2J\n", styles=("\x1b[1m", "\x1b[0m"))
    assert capsys.readouterr().out == "\x1b[1mhead\x1b[0m\\x1b[2J\n"


PRINTS = {"outputs.py": 2}


def test_commands_print_only_by_these_functions() -> None:
    found: Counter[str] = Counter()
    for file in Path(outputs.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print",
                "sys.stdout.write",
                "sys.stderr.write",
            ):
                found[file.name] += 1
    assert found == PRINTS


@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        (">/dev/full", 1, "agent-scheduler output: No space left on device\n"),
        ("> >(exec 0<&-; sleep 0.2)", 141, ""),
        (">/dev/full 2>/dev/full", 1, ""),
    ],
)
def test_an_output_that_is_full_or_closed_is_one_line_at_most(redirected: str, code: int, told: str) -> None:
    # More than a pipe holds.
    command = f'exec "$0" -c "$1" {redirected}'
    program = 'from agent_scheduler.cli.outputs import show\nfor _ in range(9): show("x" * 99_999)'
    run = subprocess.run(
        ["/bin/bash", "-c", command, sys.executable, program], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert (run.returncode, run.stderr.decode()) == (code, told)
