"""The check of the source's English finds what it bans, and nothing in plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import english


def found(source: str, name: str = "a.py") -> list[tuple[int, str]]:
    return [(each.line, each.found) for each in english.check(Path(name), source)]


def test_the_folders_in_the_list_are_in_plain_english() -> None:
    assert english.main([]) == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Of each pod, its key."""\n', (1, "Of")),
        ('def f():\n    """What the pod asks for."""\n', (2, "What")),
        ('def f():\n    """Whether the pod is bound."""\n', (2, "Whether")),
        ("#: By name.\nNODES = {}\n", (1, "By")),
        ('class A:\n    """Records writes.\n\n    The queue is told of each.\n    """\n', (4, "told")),
        ("x = 1  # lists it anew\n", (1, "anew")),
        ("# The first line.\n# Nobody reads the second.\nx = 1\n", (2, "Nobody")),
        ('raise ValueError(f"{name}: a limit that there is not")\n', (1, "that there is not")),
        ('parser.add_argument("--n", help="stop after so many pods")\n', (1, "so many")),
        ('self._log.info("lease_lost", name=name)\n', (1, "lease_lost")),
        ('_log.warning("Lease lost")\n', (1, "Lease")),
        ('_log.warning("lease lost.")\n', (1, ".")),
        ("x = 1  # normalises the name\n", (1, "normalises")),
    ],
)
def test_a_banned_pattern_is_found_on_its_line(source: str, expected: tuple[int, str]) -> None:
    assert found(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        '"""Pods by node."""\n',
        'def f():\n    """Return whether the pod is bound."""\n',
        'class A:\n    @property\n    def b(self):\n        """Whether the pod is bound."""\n',
        'def f():\n    """Return the name, at most `told` characters: no more than 63."""\n',
        "#: Whether the pod is bound.\nBOUND = False\n",
        "x = y  # noqa: anew\n",
        'told = {"told": "anew"}\n',
        'self._log.info("lease lost", name=name)\n',
        '_log.warning("OpenTelemetry", problem=problem)\n',
    ],
)
def test_plain_english_and_code_are_let_pass(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# Title\n\nThe queue is\ntold of it.\n", (3, "told")),
        ("- One pod.\n- The lease lies\n  in kube-system.\n", (2, "lies in")),
        ("| a | b |\n| --- | --- |\n| `told` | lists it anew |\n", (3, "anew")),
        ("```sh\necho told\n```\n\nIt is mended.\n", (5, "mended")),
    ],
)
def test_a_banned_pattern_is_found_in_a_page(page: str, expected: tuple[int, str]) -> None:
    assert found(page, "a.md") == [expected]


@pytest.mark.parametrize(
    "page",
    [
        "```\nit is told\n```\n",
        "Run\n\n    make told    # anew\n    make anew\n\nand wait.\n",
        "See [the page](told.md#anew).\n",
        "Of these, the `told` one waits.\n",
    ],
)
def test_code_and_links_of_a_page_are_let_pass(page: str) -> None:
    assert found(page, "a.md") == []


def test_a_path_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="src/moved"):
        english.files_of(["src/moved"])
