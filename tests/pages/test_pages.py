"""The commands of each page do what it says: in a fresh clone, and those of the first pages with this environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documents import ALL, PAGES, Typed, blocks, typed, whole_commands
from tests.support.needed import kubectl, need
from tests.support.places import ROOT

from . import table, walking
from .table import GIVEN, NOT_HERE

QUICK_START = ROOT / "docs" / "quickstart.md"
#: The pages that a reader opens first. `make test` tries them without an installation.
FIRST = (ROOT / "README.md", QUICK_START)
#: The programs that a shell block begins its lines with; a block of another language must not.
PROGRAMS = (
    "$",
    "agent-scheduler",
    "docker",
    "embedded-kubernetes",
    "helm",
    "kubectl",
    "make",
    "pip",
    "python",
    "python3",
)


def of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def walked(page: Path, place: Path, clone: Path | None = None) -> walking.Walk:
    """Walk a page; a failure of any command fails the test."""
    kubectl()
    need(walking.alone() or walking.ports_are_free(), "a port of the documentation is taken on this machine")
    walk = walking.begun(page, place / "page", clone)
    walk.walk()
    assert walk.problems == [], "\n\n".join(walk.problems)
    return walk


@pytest.mark.parametrize("page", FIRST, ids=of)
def test_the_first_pages_are_right_about_the_installed_program(page: Path, tmp_path: Path) -> None:
    walked(page, tmp_path)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh clone with its environment, which the processes of a test run share."""
    need((ROOT / ".git").exists(), f"{ROOT} is not a checkout")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "clone" / "agent-scheduler"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".venv" / ".installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            walking.clone(folder)
            try:
                walking.made(folder)
            except subprocess.CalledProcessError as error:
                need(False, f"make gets no packages here: {error.stderr[-500:]}")
    return folder


@pytest.mark.wide
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", table.pages(), ids=of)
def test_each_command_of_a_page_does_what_the_page_says_in_a_fresh_clone(
    page: Path, clone: Path, tmp_path: Path
) -> None:
    for program in walked(page, tmp_path, clone).lacking:
        need(False, f"there is no {program}; python3 .ci/tools.py fetches it")


def test_what_is_given_for_a_page_is_for_one_of_its_commands() -> None:
    assert set(GIVEN) <= {of(page) for page in table.pages()}
    texts = {page: [each.text for each in typed(page)] for page in table.pages()}
    for page, found in texts.items():
        need = table.given(page)
        assert [start for start in need.before if not any(text.startswith(start) for text in found)] == []
        assert [name for name in need.placeholders if not any(name in text for text in found)] == []


@pytest.mark.parametrize("row", NOT_HERE, ids=lambda row: row.command)
def test_each_row_of_what_cannot_run_here_is_a_command_of_a_page(row: table.Row) -> None:
    assert any(table.row_of(each) is row for page in table.pages() for each in typed(page))
    assert row.needs


@pytest.mark.parametrize("page", ALL, ids=of)
def test_each_block_of_commands_is_marked_as_such(page: Path) -> None:
    for block, _ in blocks(page):
        if block.language not in ("sh", "console"):
            first = block.text.split(maxsplit=1)[0].removeprefix(".venv/bin/")
            assert first not in PROGRAMS, f"begin it with ```sh, or with ```console if it has outputs: {block}"
        elif page not in PAGES:
            pytest.fail(f"no test tries the commands of this page: {block}")


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```sh\nfalse\n```", "README.md:2: false\nexit code 1"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```", "README.md:2: echo one\nshown:\ntwo\n\nsaid:\none"),
        ("```console\n$ echo one\ntwo\n```", "README.md:2: echo one\nthe page shows the line 'two'"),
        ("```console\n$ echo one; echo three\none\ntwo\n```", ""),
        ("```sh\nexport A=b\n```\n\n```sh\ntest $A = b && cd docs\nsleep 50 &\nkill $(jobs -p)\n```", ""),
        (
            "```sh\nsetsid sleep 500 &\nuntil pgrep -fx 'sleep 500' >/dev/null; do sleep 0.1; done\n```",
            "README.md leaves running: ['sleep 500 ']",
        ),
        ("```sh\nagent-scheduler run\ntrue\n```", "README.md:2: agent-scheduler run\ngoes on until Ctrl-C"),
        ("```sh\nagent-scheduler run --no-such\n```", "README.md:2: agent-scheduler run --no-such\ndoes not get ready"),
        ("```sh\nexit 3\n```", "README.md:2: \nthe shell has ended"),
    ],
)
def test_what_a_page_gets_wrong_is_told(
    page: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[str], list[Typed]]
) -> None:
    found = written(page)
    monkeypatch.setattr(walking, "typed", lambda _: iter(found))
    walk = walking.begun(ROOT / "README.md", tmp_path / "page", None)
    walk.walk()
    assert [each[: len(problem)] for each in walk.problems] == ([problem] if problem else [])


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], list[Typed]]:
    """Return the commands of a text, as those of README.md."""

    def read(text: str) -> list[Typed]:
        file = tmp_path / "written.md"
        file.write_text(text)
        return [
            Typed(ROOT / "README.md", each.line, each.text, each.shown, each.is_example, each.has_next)
            for each in typed(file)
        ]

    return read


def test_a_command_may_have_several_lines() -> None:
    script = "# why\na \\\n  b\nc <<EOF\n# d\n\nEOF\necho 'e\n\nf'\n\ng  # it's h\n"
    assert [*whole_commands(script)] == [
        (1, "a \\\n  b"),
        (3, "c <<EOF\n# d\n\nEOF"),
        (7, "echo 'e\n\nf'"),
        (11, "g  # it's h"),
    ]
    with pytest.raises(ValueError, match="no shell command ends here"):
        [*whole_commands("echo 'a\n")]
