"""Label and field selectors of query strings, compiled to one test per record.

Grammar and errors follow apimachinery's `labels.Parse` and `fields.ParseSelector`. A selector never decodes an
object: labels and field values are extracted when it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .builtin import names
from .errors import ApiError, bad_request
from .store import Record

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")

Requirement = Callable[[Mapping[str, str]], bool]


def _refused(path: str, text: str, problems: names.Problems) -> ApiError:
    return bad_request(f'unable to parse requirement: {path}: Invalid value: "{text}": {"; ".join(problems)}')


def _check_key(key: str) -> str:
    if problems := names.qualified(key):
        raise _refused("key", key, problems)
    return key


class _Labels:
    """A recursive-descent parser of label selectors."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                break
            self.words.append(match[1])
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def next(self) -> str:
        word = self.peek()
        self.at += 1
        return word

    def fail(self, found: str, expected: str) -> Exception:
        return bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while self.peek():
            requirements.append(self.requirement())
            if self.peek():
                found = self.next()
                if found != ",":
                    raise self.fail(found, "',' or 'end of string'")
                if not self.peek():
                    raise self.fail("", "identifier after ','")
        return requirements

    def requirement(self) -> Requirement:
        word = self.next()
        if word == "!":
            key = _check_key(self.next())
            return lambda labels: key not in labels
        if word in ("=", "==", "!=", "(", ")", ",", "<", ">"):
            raise self.fail(word, "!, identifier, or 'end of string'")
        key = _check_key(word)
        operator = self.peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self.next()
        if operator in ("=", "=="):
            value = self.value(key)
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self.value(key)
            return lambda labels: labels.get(key) != value
        if operator == "in":
            values = self.values(key)
            return lambda labels: labels.get(key) in values
        if operator == "notin":
            values = self.values(key)
            return lambda labels: labels.get(key) not in values
        if operator in ("<", ">", "lt", "gt"):
            return self.compare(key, less=operator in ("<", "lt"))
        raise self.fail(operator, "in, notin, =, ==, !=, gt, lt")

    def value(self, key: str, number: int = 0) -> str:
        if self.peek() in ("", ","):
            return ""
        word = self.next()
        if word in ("=", "==", "!=", "(", ")", "!", "<", ">"):
            raise self.fail(word, "identifier")
        if problems := names.label_value(word):
            raise _refused(f"values[{number}][{key}]", word, problems)
        return word

    def values(self, key: str) -> frozenset[str]:
        found = self.next()
        if found != "(":
            raise self.fail(found, "'('")
        values = set()
        while True:
            word = self.peek()
            if word in (",", ")"):
                values.add("")
            else:
                values.add(self.value(key, len(values)))
            found = self.next()
            if found == ")":
                return frozenset(values)
            if found != ",":
                raise self.fail(found, "',', or ')'")

    def compare(self, key: str, *, less: bool) -> Requirement:
        text = self.value(key)
        try:
            bound = int(text)
        except ValueError:
            raise bad_request(
                f"unable to parse requirement: values[0]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            ) from None

        def test(labels: Mapping[str, str]) -> bool:
            try:
                value = int(labels[key])
            except (KeyError, ValueError):
                return False
            return value < bound if less else value > bound

        return test


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", text)


def field_terms(text: str) -> list[tuple[str, bool, str]]:
    """Return (field, whether equality is required, value) of each term of a field selector. Raises 400."""
    terms = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = re.match(r"((?:[^\\=!]|\\.)*?)(!=|==|=)(.*)\Z", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((match[1].strip(), match[2] != "!=", _unescape(match[3])))
    return terms


def label_requirements(text: str) -> list[Requirement]:
    """Return the requirements of a label selector. Raises 400."""
    return _Labels(text).parse()


def _fields(text: str, names: tuple[str, ...]) -> list[tuple[int, bool, str]]:
    """Return (index in `names`, whether equality is required, value) of each term."""
    terms = []
    for name, equal, value in field_terms(text):
        if name not in names:
            raise bad_request(f"field label not supported: {name}")
        terms.append((names.index(name), equal, value))
    return terms


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled pair of selectors. `equal` and `unequal` are required and excluded (field index, value) pairs."""

    labels: tuple[Requirement, ...] = ()
    equal: tuple[tuple[int, str], ...] = ()
    unequal: tuple[tuple[int, str], ...] = ()

    def matches(self, record: Record) -> bool:
        fields = record.fields
        for index, value in self.equal:
            if fields[index] != value:
                return False
        for index, value in self.unequal:
            if fields[index] == value:
                return False
        if not self.labels:
            return True
        labels = record.labels
        return all(requirement(labels) for requirement in self.labels)

    def pinned(self, index: int) -> str | None:
        """Return the only value of this field that matches, if the selector requires equality."""
        for field, value in self.equal:
            if field == index:
                return value
        return None


def compile_selector(labels: str, fields: str, names: tuple[str, ...]) -> Selector | None:
    """Compile selectors; return None if everything matches.

    Raises 400 for a syntax error, and for a field that is not in `names`.
    """
    requirements = label_requirements(labels) if labels else []
    terms = _fields(fields, names) if fields else []
    if not requirements and not terms:
        return None
    return Selector(
        tuple(requirements),
        tuple((index, value) for index, wanted, value in terms if wanted),
        tuple((index, value) for index, wanted, value in terms if not wanted),
    )


def named(selector: Selector | None, index: int, name: str) -> Selector:
    """Return the selector with an additional requirement on the name in field `index`."""
    term = (index, name)
    if selector is None:
        return Selector(equal=(term,))
    return Selector(selector.labels, (*selector.equal, term), selector.unequal)
