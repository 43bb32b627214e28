"""One part of a report: its command, environment and result; kept as JSON, so that parts can run separately.

A part is a program that printed Markdown, or a scenario with its runs. The report is written from everything that a
folder holds, whenever it was run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from apimachinery.times import time_text
from bench.harness.measure import interpreter_milliseconds, machine
from bench.harness.result import Run, read_runs, run_of

#: Seconds that a stopped part has to end its children and to remove its objects.
_GRACE = 120.0
#: Number of lines of a failed part's standard error that are kept.
_LAST_WORDS = 20
ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True, kw_only=True)
class Part:
    """The result of a part.

    `text` is a program's Markdown, or the last output of a failed one. A scenario has `runs` instead.
    """

    name: str
    command: list[str]
    code: int = 0
    text: str = ""
    seconds: float = 0.0
    date: str = ""
    commit: str = ""
    #: The machine's load average just before.
    load: float = 0.0
    #: The machine's speed just before, as `interpreter_milliseconds` measures it; 0 if it was not measured.
    million_additions_ms: float = 0.0
    #: The machine, and the versions of the software.
    machine: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.code


def write_part(folder: Path, part: Part) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part.name}.json").write_text(json.dumps(asdict(part), indent=1) + "\n")


def read_parts(folder: Path) -> dict[str, Part]:
    """Return the parts of the folder by name."""
    found: dict[str, Part] = {}
    for file in sorted(folder.glob("*.json")):
        data = json.loads(file.read_text())
        part = Part(**{**data, "runs": [run_of(run) for run in data["runs"]]})
        found[part.name] = part
    return found


def run_part(name: str, command: Sequence[str], *, folder: Path, scenario: bool = False) -> Part:
    """Run `python ARGUMENTS` to its end in its own process, so that no part inherits the memory of another.

    The part is written to `folder`, and its standard error is passed on. A signal that ends this process first ends
    that one, and gives it the time to end its own children and to remove its objects; runs that are complete by then
    are kept.
    """
    part = Part(name=name, command=[*map(_told, command)], commit=revision(), load=os.getloadavg()[0])
    part.date, part.machine = time_text(datetime.now(UTC)), machine()
    part.million_additions_ms = interpreter_milliseconds()
    part.code, part.text = 130, "interrupted"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-part-") as temporary:
        kept = Path(temporary) / "runs"
        given = [*command[1:], *(("--json", str(kept)) if scenario else ())]
        ended = False
        try:
            out, said, part.code = _run(given)
            ended = True
        finally:
            part.seconds = time.monotonic() - began
            if scenario and kept.exists():
                part.runs = read_runs(kept)
            if ended:
                # A scenario's runs contain the reasons of refusals.
                part.text = (said or out) if part.code and not part.runs else "" if scenario else out
            if ended or part.runs:
                write_part(folder, part)
    return part


def _told(argument: str) -> str:
    """Return the argument as it is stored: files of a trace without their folders."""
    kind, colon, files = argument.partition(":")
    if not colon or not kind.replace("-", "").isalpha() or files.startswith("//"):
        return argument
    return kind + colon + ",".join(file.rpartition("/")[2] for file in files.split(","))


def _run(arguments: Sequence[str]) -> tuple[str, str, int]:
    """Return standard output, the end of standard error, and the exit code."""
    with tempfile.TemporaryFile("w+") as out:
        # In its own session: Ctrl-C reaches it once, from here, so it ends its own children in order.
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said = _passed_on(process.stderr)
                process.wait()
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    try:
                        process.wait(timeout=_GRACE)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
        out.seek(0)
        return out.read().strip(), said, process.returncode


def _passed_on(stream: IO[str] | None) -> str:
    last: deque[str] = deque(maxlen=_LAST_WORDS)
    for line in stream or ():
        sys.stderr.write(line)
        sys.stderr.flush()
        last.append(line)
    return "".join(last).strip()


def revision() -> str:
    """Return the commit that is checked out, with `+` if files differ from it; empty outside a checkout."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
