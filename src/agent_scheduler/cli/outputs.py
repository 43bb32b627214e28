"""The flag `-o`: the output formats of the commands that show the cluster."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

#: Formats of lists; the first one is the default.
LISTS: Final = ("table", "wide", "json", "yaml")
#: Formats of one object.
TEXTS: Final = ("text", "json", "yaml")
PROGRAMS: Final = ("json", "yaml")


def add_output(parser: argparse.ArgumentParser, outputs: tuple[str, ...] = LISTS, *, wide: str = "") -> None:
    """Add the flag. `wide` describes the wider table."""
    texts = {
        "table": "a table",
        "wide": wide or "a wider table",
        "text": "text",
        "json": "JSON",
        "yaml": "YAML",
    }
    *first, last = (texts[each] for each in outputs)
    parser.add_argument(
        "-o", "--output", choices=outputs, default=outputs[0], help=f"{', '.join(first)} or {last}"
    )


def dumped(shown: Mapping[str, Any], output: str) -> str:
    """Format as JSON or YAML in the given order."""
    if output == "json":
        return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return text
