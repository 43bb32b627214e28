"""Functions for all output of commands, and the flag `-o`: the output formats of the commands that show the cluster.

Commands print only by `show` and `complain`, because a terminal obeys escape sequences, which texts of objects may
contain.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import yaml

from apimachinery.visible import visible, visible_json, visible_lines

from .program import program

#: Formats of lists; the first one is the default.
LISTS: Final = ("table", "wide", "json", "yaml")
#: Formats of one object.
TEXTS: Final = ("text", "json", "yaml")
PROGRAMS: Final = ("json", "yaml")


def add_output(parser: argparse.ArgumentParser, outputs: tuple[str, ...] = LISTS, *, wide: str = "") -> None:
    """Add the flag. `wide` describes the wider table."""
    texts = {"table": "a table", "wide": wide or "a wider table", "text": "text", "json": "JSON", "yaml": "YAML"}
    *first, last = (texts[each] for each in outputs)
    parser.add_argument("-o", "--output", choices=outputs, default=outputs[0], help=f"{', '.join(first)} or {last}")


def dumped(shown: Mapping[str, Any], output: str) -> str:
    """Format as JSON or YAML in the given order. Exits if an object is nested too deeply."""
    try:
        return _dumped(shown, output)
    except RecursionError:
        complain("output", "the object is nested too deeply to be printed")
        sys.exit(2)


def _dumped(shown: Mapping[str, Any], output: str) -> str:
    if output == "json":
        return visible_json(json.dumps(shown, indent=1, ensure_ascii=False)) + "\n"
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    if visible_lines(text) != text:
        # YAML's escapes replace some of the characters that a terminal obeys or hides, or all that are not in ASCII.
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=False)
    return text


def show(text: str, *, styles: tuple[str, ...] = ()) -> None:
    """Print to standard output. `styles` are the terminal codes of `text` that are meant."""
    if styles:
        parts = re.split(f"({'|'.join(map(re.escape, styles))})", text)
        text = "".join(part if part in styles else visible_lines(part) for part in parts)
    else:
        text = visible_lines(text)
    write(text)


def write(text: str) -> None:
    """Print a text of the program itself. Exits if standard output is full, or its reader has gone."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        # The interpreter would write the rest at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The exit code of a program that the signal ends, such as before `head`.
            sys.exit(128 + signal.SIGPIPE)
        complain("output", error.strerror or error)
        sys.exit(1)


def complain(command: str, problem: object) -> None:
    """Print a line about a problem to standard error."""
    # OSError: standard error is full, or its reader has gone.
    with suppress(OSError):
        print(f"{program()} {command}: {visible(' '.join(str(problem).split()))}", file=sys.stderr)
