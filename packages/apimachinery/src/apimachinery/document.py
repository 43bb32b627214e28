"""A YAML document that remembers the line of each value."""

from __future__ import annotations

from typing import Any

import yaml

from apimachinery.errors import ConfigurationError, Path
from apimachinery.yaml_text import InvalidYaml, check, yaml_errors


class Document:
    """The data of a YAML text with the lines of its parts."""

    def __init__(self, text: str, *, source: str) -> None:
        """Parse the text.

        Raises ConfigurationError for invalid YAML, several documents, duplicate keys, and too many levels or aliases.
        """
        self.source = source
        try:
            check(text)
            with yaml_errors():
                loader = yaml.CSafeLoader(text)
                try:
                    self._root = loader.get_single_node()
                    duplicate = None if self._root is None else _duplicate(self._root)
                    self.data: Any = None if self._root is None else loader.construct_document(self._root)
                finally:
                    loader.dispose()
        except InvalidYaml as error:
            line = f":{error.line}" if error.line else ""
            raise ConfigurationError(f"{source}{line}: invalid YAML: {error.message}") from None
        if duplicate is not None:
            raise ConfigurationError(f"{source}:{duplicate}")

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


def _duplicate(root: yaml.Node) -> str | None:
    """Return line and name of a duplicate key: YAML forbids them, but PyYAML silently keeps the last one."""
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
                        return f"{line}: the key {key.value!r} was given already on line {first}"
                    keys[key.value] = line
                waiting.append(value)
    return None


def text_of(data: Any) -> str:
    """Return plain data as YAML text."""
    return yaml.safe_dump(data, sort_keys=False)
