"""`kubectl_complete-agent_scheduler`: kubectl's completion calls it for the words after `kubectl agent-scheduler`.

It prints a completion per line, with a description behind a tab, and at last a directive of Cobra, which kubectl's
completion is made with: whether the shell may offer files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from .main import parser_of
from .outputs import write

#: Cobra's directives.
_FILES, _NO_FILES = ":0", ":4"


def completions(words: Sequence[str]) -> list[str]:
    """Return the lines for `words`, of which the last one is incomplete."""
    *before, current = words or [""]
    parser, positional = parser_of(before), 0
    value: argparse.Action | None = None
    for word in before:
        commands = _commands(parser)
        flag = parser._option_string_actions.get(word)
        if value is not None:
            value = None
        elif flag is not None:
            value = flag if flag.nargs is None else None
        elif not word.startswith("-"):
            if commands is not None and word in commands.choices:
                parser, positional = commands.choices[word], 0
            else:
                positional += 1
    if value is not None:
        return _lines(_choices(value), current, has_files=value.choices is None)
    if current.startswith("-"):
        expand = parser._get_formatter()._expand_help
        flags = ((name, flag) for name, flag in parser._option_string_actions.items() if name.startswith("--"))
        return _lines(((name, expand(flag)) for name, flag in flags), current)
    plain = [each for each in parser._actions if not each.option_strings]
    expected = plain[positional] if positional < len(plain) else None
    return _lines(() if expected is None else _choices(expected), current)


def _commands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    return next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)


def _choices(action: argparse.Action) -> Iterator[tuple[str, str]]:
    if isinstance(action, argparse._SubParsersAction):
        yield from ((each.dest, each.help or "") for each in action._choices_actions)
    else:
        yield from ((str(each), "") for each in action.choices or ())


def _lines(found: Iterator[tuple[str, str]] | tuple[()], current: str, *, has_files: bool = False) -> list[str]:
    lines = [f"{name}\t{text}" if text else name for name, text in found if name.startswith(current)]
    return [*lines, _FILES if has_files else _NO_FILES]


def main() -> int:
    write("\n".join(completions(sys.argv[1:])) + "\n")
    return 0
