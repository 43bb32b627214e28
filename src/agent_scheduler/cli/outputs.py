"""`-o`: what commands that show what there is print, for people and for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

#: Of lists. The first is what is printed without the flag.
LISTS: Final = ("table", "wide", "json", "yaml")
#: Of one object.
TEXTS: Final = ("text", "json", "yaml")
PROGRAMS: Final = ("json", "yaml")


def add_output(parser: argparse.ArgumentParser, outputs: tuple[str, ...] = LISTS, *, wide: str = "") -> None:
    """`wide`: what a wider table has."""
    told = {
        "table": "a table for people",
        "wide": wide or "a wider one",
        "text": "text for people",
        "json": "JSON",
        "yaml": "YAML",
    }
    *first, last = (told[each] for each in outputs)
    parser.add_argument(
        "-o", "--output", choices=outputs, default=outputs[0], help=f"{', '.join(first)} or {last}"
    )


def dumped(shown: Mapping[str, Any], output: str) -> str:
    """As JSON or YAML, in the order that it has."""
    if output == "json":
        return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return text
