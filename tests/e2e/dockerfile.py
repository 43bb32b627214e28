"""The Dockerfile as data: its stages with their steps, and the files that a build may copy.

Of the format it knows what this project's file uses; anything else is an error that names the line.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Instructions whose words have variables in them; RUN leaves them to the shell, and what is JSON has none.
_EXPANDED = {"FROM", "ENV", "WORKDIR", "COPY", "USER", "EXPOSE"}
_OTHERS = {"ARG", "RUN", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Step:
    """`words`: what comes after the instruction; for RUN the one command line."""

    line: int
    instruction: str
    words: tuple[str, ...]
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Stage:
    base: str
    name: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> list[Stage]:
    """The stages in order, with every variable replaced by its value at that place."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line, instruction, rest in _instructions(text):
        if instruction not in _EXPANDED | _OTHERS:
            raise ValueError(f"line {line}: {instruction} is not known here")
        if instruction == "ARG":
            name, _, default = rest.partition("=")
            arguments[name] = default
        elif instruction == "FROM":
            base, *name = _expand(rest, arguments, line).split()
            stages.append(Stage(base, name[1] if name else ""))
        elif not stages:
            raise ValueError(f"line {line}: {instruction} before FROM")
        else:
            _add(stages[-1], line, instruction, rest)
    return stages


def _add(stage: Stage, line: int, instruction: str, rest: str) -> None:
    if instruction == "RUN":
        stage.steps.append(Step(line, instruction, (rest,)))
        return
    if instruction in ("ENTRYPOINT", "CMD"):
        words = json.loads(rest)
        stage.steps.append(Step(line, instruction, tuple(words)))
        return
    flags = dict(re.findall(r"--(\S+?)=(\S+)\s", rest))
    words = shlex.split(_expand(re.sub(r"--\S+\s+", "", rest), _known(stage), line))
    if instruction == "ENV":
        stage.environment |= dict(word.split("=", 1) for word in words)
    if flags.keys() - {"from"}:
        raise ValueError(f"line {line}: --{', --'.join(flags)} is not known here")
    stage.steps.append(Step(line, instruction, tuple(words), flags))


#: What the base brings, as in its own Dockerfile.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


def _known(stage: Stage) -> dict[str, str]:
    return {**BASE_ENVIRONMENT, **stage.environment}


def _expand(text: str, variables: Mapping[str, str], line: int) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise ValueError(f"line {line}: there is no variable {name}")
        return variables[name]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, instruction and rest, with continued lines joined."""
    first, joined = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first or number
        joined += line.removesuffix("\\")
        if not line.endswith("\\"):
            instruction, _, rest = joined.strip().partition(" ")
            yield first, instruction, rest.strip()
            first, joined = 0, ""
    if joined:
        raise ValueError(f"line {first}: the last line goes on")


def sent(context: Path) -> Iterator[Path]:
    """The files that a build gets to see, relative to `context`: all that .dockerignore does not leave out."""
    lines = [line.strip() for line in (context / ".dockerignore").read_text().splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    yield from _sent(context, Path(), patterns)


def _sent(context: Path, folder: Path, patterns: list[str]) -> Iterator[Path]:
    for entry in sorted((context / folder).iterdir()):
        path = folder / entry.name
        if entry.is_dir() and not entry.is_symlink():
            wanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
            if not _ignored(path, patterns) or any(f"{each}/".startswith(f"{path}/") for each in wanted):
                yield from _sent(context, path, patterns)
        elif not _ignored(path, patterns):
            yield path


def _ignored(path: Path, patterns: list[str]) -> bool:
    """The last pattern that fits the path or a folder of it decides."""
    ignored = False
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        name = plain.removeprefix("**/")
        for part in (path, *path.parents[:-1]):
            # A star ends at a slash.
            if fnmatch.fnmatchcase(part.name, name) if name != plain else _fits(part, plain):
                ignored = not pattern.startswith("!")
    return ignored


def _fits(path: Path, pattern: str) -> bool:
    words = pattern.split("/")
    return len(path.parts) == len(words) and all(map(fnmatch.fnmatchcase, path.parts, words))
