"""One YAML document that remembers on which line each of its values stands."""

from __future__ import annotations

from typing import Any

import yaml

from apimachinery.errors import ConfigurationError, Path


class Document:
    """The data of a YAML text, and the lines of its parts."""

    def __init__(self, text: str, *, source: str) -> None:
        """Raises ConfigurationError for what is no YAML, for several documents, and for a key given twice."""
        self.source = source
        try:
            loader = yaml.CSafeLoader(text)
            try:
                self._root = loader.get_single_node()
                if self._root is not None:
                    _refuse_duplicates(self._root, source)
                self.data: Any = None if self._root is None else loader.construct_document(self._root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark else ""
            raise ConfigurationError(f"{source}{line}: not usable YAML: {error.problem}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: a scalar that looks like a date and is none. RecursionError: nested too deeply.
            raise ConfigurationError(f"{source}: not usable YAML: {error}") from None

    def where(self, path: Path) -> str:
        """`file:line` of the value at `path`, or of the nearest part around it."""
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


def _refuse_duplicates(root: yaml.Node, source: str) -> None:
    """YAML forbids a key twice; PyYAML keeps the last one, silently dropping what an operator wrote."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        # An alias is the anchor's own node: visiting each once keeps a nest of aliases linear.
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
    """Plain data as a file's text."""
    return yaml.safe_dump(data, sort_keys=False)
