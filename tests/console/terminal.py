"""Terminals that tmux emulates, and their screens as SVG."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.needed import need

#: The size of a character, and the space around all of them.
_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 14
_SGR = re.compile(r"\x1b\[([\d;]*)m")
#: The foregrounds 30 to 37, and 90 to 97.
_COLORS = ("#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4") * 2
_STYLE = """
rect.ground{fill:#0d1117;stroke:#30363d}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}
.b{font-weight:bold}
.cursor{fill:#8b949e}
"""


class Screen(NamedTuple):
    """The rows, with escape sequences for colors only, and the cell of the cursor unless it is hidden."""

    rows: tuple[str, ...]
    cursor: tuple[int, int] | None

    def texts(self) -> list[str]:
        """Return the rows without colors and spaces at their ends."""
        return [_SGR.sub("", row).rstrip() for row in self.rows]


class Terminal:
    """A command in a terminal of its own. Its working directory is empty and is removed at the end."""

    def __init__(self, columns: int, rows: int, *, command: str) -> None:
        need(shutil.which("tmux"), "there is no tmux on the PATH")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.home = Path(self._folder.name, "home")
        self._start = ("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(self.home), command)

    async def __aenter__(self) -> Self:
        self.home.mkdir()
        await self._tmux("-f", "/dev/null", *self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tmux("kill-server")
        self._folder.cleanup()

    async def type(self, text: str) -> None:
        # A semicolon at the end would separate two commands of tmux.
        await self._tmux("send-keys", "-l", "--", f"{text[:-1]}\\;" if text.endswith(";") else text)

    async def press(self, key: str) -> None:
        await self._tmux("send-keys", key)

    async def screen(self) -> Screen:
        where = "#{cursor_flag} #{cursor_x} #{cursor_y}"
        head, _, rows = (await self._tmux("display-message", "-p", where, ";", "capture-pane", "-p", "-e")).partition(
            "\n"
        )
        shown, column, row = map(int, head.split())
        return Screen(tuple(rows.split("\n")[:-1]), (column, row) if shown else None)

    async def _tmux(self, *arguments: str) -> str:
        socket = str(Path(self._folder.name, "tmux"))
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environment |= {name: value for name in ("PYTHONPATH",) if (value := os.environ.get(name))}
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", socket, *arguments), env=environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, arguments
        return out.decode()


def _line(row: str) -> str:
    """Return a row as SVG texts, each of which has the width of its characters whatever the font is."""
    out, column, bold, color = [], 0, False, ""
    marks = [(0, 0, ""), *((found.start(), found.end(), found[1] or "0") for found in _SGR.finditer(row))]
    for (_, begin, codes), (end, _, _) in pairwise([*marks, (len(row), 0, "")]):
        for code in map(int, codes.split(";") if codes else ()):
            match code:
                case 0:
                    bold, color = False, ""
                case 1:
                    bold = True
                case 39:
                    color = ""
                case _ if code % 60 in range(30, 38):
                    color = _COLORS[code % 60 - 30]
        text = row[begin:end]
        if text.strip():
            style = (' class="b"' if bold else "") + (f' fill="{color}" style="fill:{color}"' if color else "")
            where = f'x="{column * _WIDTH:g}" textLength="{len(text) * _WIDTH:g}"'
            out.append(f'<text {where} lengthAdjust="spacingAndGlyphs"{style}>{escape(text)}</text>')
        column += len(text)
    return "".join(out)


def film(frames: Sequence[tuple[float, Screen]], *, columns: int, seconds: float, poster: float, title: str) -> str:
    """Return an SVG that plays frames, each from its time on, for ever.

    It begins with the frame at the time `poster`, which is also all that is displayed where animations are not wanted
    or not supported. CSS moves a strip that has all frames side by side.
    """
    rows = len(frames[0][1].rows)
    width, height = columns * _WIDTH + 2 * _MARGIN, rows * _HEIGHT + 2 * _MARGIN
    lines: dict[str, int] = {}
    strip, steps, first = [], [], 0
    for number, (at, screen) in enumerate(frames):
        parts = [
            f'<use href="#l{lines.setdefault(line, len(lines))}" y="{index * _HEIGHT}"/>'
            for index, row in enumerate(screen.rows)
            if (line := _line(row))
        ]
        if screen.cursor:
            column, row_number = screen.cursor
            parts.append(
                f'<rect class="cursor" x="{column * _WIDTH:g}" y="{row_number * _HEIGHT - 13}" width="8" height="16"/>'
            )
        strip.append(f'<g transform="translate({number * width:g})">{"".join(parts)}</g>')
        steps.append(f"{100 * at / seconds:.2f}%{{transform:translateX({-number * width:g}px)}}")
        if at <= poster:
            first = number
    defined = "".join(f'<g id="l{number}">{line}</g>' for line, number in lines.items())
    moving = ""
    if len(frames) > 1:
        moving = (
            f"@keyframes play{{{''.join(steps)}100%{{transform:translateX({-(len(frames) - 1) * width:g}px)}}}}"
            f".strip{{transform:translateX({-first * width:g}px);"
            f"animation:play {seconds:g}s steps(1,end) {-poster:g}s infinite}}"
            "@media(prefers-reduced-motion:reduce){.strip{animation:none}}"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(title)}"><style>{_STYLE.strip()}{moving}</style>'
        f"<defs>{defined}</defs>"
        f'<rect class="ground" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>'
        f'<svg x="{_MARGIN}" y="{_MARGIN}" width="{width - 2 * _MARGIN:g}" height="{height - 2 * _MARGIN:g}">'
        f'<g transform="translate(0 13)"><g class="strip">{"".join(strip)}</g></g></svg></svg>\n'
    )


def still(screen: Screen, *, columns: int, title: str) -> str:
    """Return an SVG of one screen."""
    return film([(0.0, screen)], columns=columns, seconds=1.0, poster=0.0, title=title)
