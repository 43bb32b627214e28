"""The lines of a recording: exchanges and watches, in order, with placeholders for what came from earlier answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One recorded line. A watch has no request but a path, and events for an answer."""

    number: int
    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int
    content_type: str
    answer: Any
    events: list[Any] | None

    @property
    def key(self) -> str:
        return f"{self.number:03d} {self.name}"


def read(path: Path) -> list[Line]:
    lines = []
    for number, text in enumerate(path.read_text().splitlines()):
        line = json.loads(text)
        if "watch" in line:
            lines.append(
                Line(
                    number,
                    line["name"],
                    "GET",
                    line["watch"],
                    {},
                    None,
                    line["status"],
                    "",
                    None,
                    line["events"],
                )
            )
            continue
        request, response = line["request"], line["response"]
        lines.append(
            Line(
                number,
                line["name"],
                request["method"],
                request["path"],
                request.get("headers") or {},
                request.get("body"),
                response["status"],
                response.get("contentType") or "",
                response.get("body"),
                None,
            )
        )
    return lines
