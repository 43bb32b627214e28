"""YAML texts of users, within limits.

libyaml builds a document by recursion in C, which ends the process by a segmentation fault if the text has a million
opening brackets. Aliases let a text of 1 KB stand for gigabytes. So a text is first read event by event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import yaml

#: The limit of levels: far more than any object of Kubernetes has, and far fewer than recursion allows.
MOST_LEVELS: Final = 100
#: The limit of what aliases repeat, in characters.
MOST_REPEATED: Final = 1_000_000
#: The limit of a file in bytes, which is kube-apiserver's for a request.
MOST_BYTES: Final = 3 * 1024 * 1024


class InvalidYaml(ValueError):
    """The text is invalid or exceeds a limit. `line` counts from 1; None if the place is unknown."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.line = line


@contextmanager
def yaml_errors() -> Iterator[None]:
    """Raise each error of the parser as `InvalidYaml`."""
    try:
        yield
    except InvalidYaml:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidYaml(str(error.problem), mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # A scalar that is no value of its type, such as the date 2001-99-99 or `!!bool x`.
        raise InvalidYaml(str(error) or type(error).__name__) from None


def check(text: str | bytes, *, levels: int = MOST_LEVELS) -> None:
    """Raise `InvalidYaml` if the text is invalid, nested too deeply, or repeats too much by aliases."""
    #: Anchor -> (levels, characters) of its complete node.
    known: dict[str, tuple[int, int]] = {}
    #: [anchor, levels, characters] of each open node.
    nodes: list[tuple[str | None, int, int]] = []
    repeated = 0
    with yaml_errors():
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else None
            anchor: str | None = getattr(event, "anchor", None)
            if isinstance(event, yaml.CollectionStartEvent):
                nodes.append((anchor, 1, 1))
                height = size = 0
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, height, size = nodes.pop()
            elif isinstance(event, yaml.ScalarEvent):
                height, size = 0, len(event.value) + 1
            elif isinstance(event, yaml.AliasEvent):
                # An anchor that is not known is that of an open node, or the parser reports it.
                if any(anchor == each for each, _, _ in nodes):
                    raise InvalidYaml(f"the alias *{anchor} is within its own anchor", line)
                height, size = known.get(str(anchor), (0, 0))
                repeated += size
            else:
                known.clear()
                continue
            if len(nodes) + height > levels:
                raise InvalidYaml(f"nested too deeply; allowed: {levels} levels", line)
            if repeated > MOST_REPEATED:
                raise InvalidYaml(f"aliases repeat too much; allowed: {MOST_REPEATED} characters", line)
            if isinstance(event, yaml.CollectionStartEvent):
                continue
            if anchor is not None and not isinstance(event, yaml.AliasEvent):
                known[anchor] = height, size
            if nodes:
                outer, most, sum_of = nodes[-1]
                nodes[-1] = outer, max(most, height + 1), sum_of + size


def load_all(text: str | bytes, *, levels: int = MOST_LEVELS) -> list[Any]:
    """Return the documents of a text. Raises `InvalidYaml`."""
    check(text, levels=levels)
    with yaml_errors():
        return list(yaml.load_all(text, yaml.CSafeLoader))


def load(text: str | bytes, *, levels: int = MOST_LEVELS) -> Any:
    """Return the only document of a text. Raises `InvalidYaml`."""
    check(text, levels=levels)
    with yaml_errors():
        return yaml.load(text, Loader=yaml.CSafeLoader)


def read(file: Path | BinaryIO) -> str:
    """Return the text of a file. Raises OSError, UnicodeDecodeError, and `InvalidYaml` if it is too large."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return read(opened)
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InvalidYaml(f"too large; allowed: {MOST_BYTES // 1024 // 1024} MiB")
    return data.decode("utf-8")
