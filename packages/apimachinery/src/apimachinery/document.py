"""A YAML document that remembers the line of each value."""

from __future__ import annotations

from typing import Any

import yaml

from apimachinery.errors import ConfigurationError, Path


class Document:
    """The data of a YAML text with the lines of its parts."""

    def __init__(self, text: str, *, source: str) -> None:
        """Parse the text. Raises ConfigurationError for invalid YAML, several documents, and duplicate keys."""
        self.source = source
        try:
            loader = yaml.CSafeLoader(text)
            try:
                self._root = loader.get_single_node()
                if self._root is not None:
                    refuse_duplicates(self._root, source)
                self.data: Any = None if self._root is None else loader.construct_document(self._root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark else ""
            raise ConfigurationError(f"{source}{line}: invalid YAML: {error.problem}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: a scalar that looks like a date but is invalid. RecursionError: nested too deeply.
            raise ConfigurationError(f"{source}: invalid YAML: {error}") from None

    def where(self, path: Path) -> str:
        """Return `file:line` of the value at `path`, or of the closest existing parent."""
        node = self._root
        line = 0 if node is None else node.start_mark.line
        for step in path:
            node = _child(node, step)
            if node is None:
                break
            line = node.start_mark.line
        return f"{self.source}:{line + 1}"


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step]  # type: ignore[no-any-return]
    return None


def refuse_duplicates(root: yaml.Node, source: str) -> None:
    """Reject duplicate keys: YAML forbids them, but PyYAML silently keeps the last one. Raises ConfigurationError."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        # An alias is the node of its anchor: visiting each node once keeps nested aliases linear.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        first = keys[key.value]
                        raise ConfigurationError(
                            f"{source}:{line}: the key {key.value!r} was given already on line {first}"
                        )
                    keys[key.value] = line
                waiting.append(value)


def text_of(data: Any) -> str:
    """Return plain data as YAML text."""
    return yaml.safe_dump(data, sort_keys=False)
