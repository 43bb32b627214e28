"""YAML texts that users write: each is read within limits, or reported with its line and what is allowed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from apimachinery.yaml_text import MOST_BYTES, InvalidYaml, load, load_all, read

#: Stands for 9^40 values.
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]\n" for each in range(1, 40)
)
DEEP = "a: &a " + "[" * 60 + "]" * 60 + "\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # A million levels would end the process.
        ("[" * 1_000_000, "line 1: nested too deeply; allowed: 100 levels"),
        ("\n" + "{a: " * 1_000_000, "line 2: nested too deeply"),
        ("- " * 1_000_000 + "a", "line 1: nested too deeply"),
        ("[" * 101 + "]" * 101, "nested too deeply"),
        (DEEP + "b: " + "[" * 60 + "*a" + "]" * 60, "line 2: nested too deeply"),
        (LAUGHS, "line 7: aliases repeat too much; allowed: 1000000 characters"),
        ("a: &a " + "x" * 600_000 + "\nb: *a\nc: *a", "line 3: aliases repeat too much"),
        ("&a {b: {c: *a}}", r"line 1: the alias \*a is within its own anchor"),
        ("a: &a {<<: *a}", "within its own anchor"),
        ("*a", "line 1: found undefined alias"),
        ("a: [", "line 2: did not find"),
        # Values of a type that they do not fit.
        ("2001-99-99", "month must be in 1..12"),
        ("1" * 5_000, "limit"),
        *((f"!!{kind} {value}", ".") for kind in ("bool", "int", "float", "timestamp") for value in ("x", '""')),
        ("? [a]\n: b", "line 1: found unhashable key"),
        ("a: \x00", "unacceptable character"),
    ],
)
def test_a_text_beyond_the_limits_is_reported(text: str, problem: str) -> None:
    with pytest.raises(InvalidYaml, match=problem):
        load_all(text)


def test_what_is_within_the_limits_is_read() -> None:
    assert load_all("a: &a {b: c}\nd: *a\n---\nx: &a 1\ny: *a") == [
        {"a": {"b": "c"}, "d": {"b": "c"}},
        {"x": 1, "y": 1},
    ]
    assert load("a: &a {x: 1}\nb: {<<: *a}")["b"] == {"x": 1}
    assert load("[" * 100 + "]" * 100) is not None
    assert load("[" * 500 + "]" * 500, levels=500) is not None
    assert load_all("") == []


def test_a_file_is_limited(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b" " * MOST_BYTES)
    assert len(read(file)) == MOST_BYTES
    with pytest.raises(InvalidYaml, match="too large; allowed: 3 MiB"):
        read(io.BytesIO(b" " * (MOST_BYTES + 1)))
    with Path("/dev/zero").open("rb") as endless, pytest.raises(InvalidYaml, match="too large"):
        read(endless)
