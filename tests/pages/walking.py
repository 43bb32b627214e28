"""A page's commands, typed into a shell in a clone, one after the other, with what must be there before.

Each page has a folder, a home and a network of its own, so that the ports on the page are free. A program that goes on
until Ctrl-C runs in another terminal and gets Ctrl-C at the end of the page, or before the next one of its kind.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.documents import Typed, blocks, differs, typed, whole_commands
from tests.support.places import ROOT

from .table import AGAIN, GOING_ON, INSTALLING, Given, given, row_of

#: Seconds for a command, and for a program to be ready or to end: they only end what hangs.
PATIENCE = 300.0
#: A variable of all processes of a page, which finds those that outlive it.
MARK = "AGENT_SCHEDULER_PAGE"
_TAIL = 3000


@cache
def alone() -> tuple[str, ...]:
    """Return the words that run a command in a network of its own, with a loopback; none if this machine forbids it."""
    words = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with contextlib.suppress(OSError):
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
            return words
    return ()


def ports_are_free() -> bool:
    """Return whether the ports of the pages are free here, for a page without a network of its own."""
    for port in (8001, 10251, 10252):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
    return True


class Ended(Exception):
    """The shell did not answer, or has ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


class Terminal:
    """A shell, in which commands leave behind what they change: variables, the folder, jobs."""

    def __init__(self, folder: Path, home: Path, variables: Mapping[str, str]) -> None:
        self.home = home
        self._steps = 0
        self._hangs = False
        kept = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "PYTHONDONTWRITEBYTECODE")}
        self.environment = {**kept, "HOME": str(home), MARK: str(home), "KUBECTL_KUBERC": "false", **variables}
        self._process = subprocess.Popen(
            [*alone(), "bash", "--norc"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        # With job control, as in a terminal, a job is a process group that gets signals and does not ignore SIGINT.
        self._say("set -m -o pipefail")

    def run(self, text: str) -> Outcome:
        """Run a command to its end."""
        step = self._written(text)
        self._say(f". {step} </dev/null >{step}.out 2>{step}.err; echo $?")
        return Outcome(int(self._answer()), _read(f"{step}.out"), _read(f"{step}.err"))

    def start(self, text: str) -> tuple[int, Path]:
        """Start a command in another terminal; return its process group, and the path that its outputs begin with."""
        step = self._written(text)
        self._say(f"{{ . {step}; }} </dev/null >{step}.out 2>{step}.err & echo $!")
        return int(self._answer()), step

    def interrupt(self, group: int) -> int:
        """Press Ctrl-C; return the exit code."""
        self._say(f"kill -INT -- -{group} 2>/dev/null; wait {group}; echo $?")
        return int(self._answer())

    def close(self) -> list[str]:
        """End the jobs of the shell and the shell; return the processes that were left, which are killed."""
        if not self._hangs:
            with contextlib.suppress(Ended, OSError):
                self._say("kill $(jobs -p) 2>/dev/null; wait; echo done")
                self._answer()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return list(self._left())

    def _left(self) -> Iterator[str]:
        mark = f"{MARK}={self.home}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    os.kill(int(process.name), signal.SIGKILL)

    def _written(self, text: str) -> Path:
        self._steps += 1
        step = self.home / f"step-{self._steps}"
        step.write_text(f"{text}\n")
        return step

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        said = b""
        end = time.monotonic() + PATIENCE
        while not said.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                self._hangs = True
                raise Ended(f"no end after {PATIENCE:g} s")
            read = self._process.stdout.read(100)
            if not read:
                raise Ended("the shell has ended")
            said += read
        return said.decode()


def _read(path: str) -> str:
    """Return the output so far; a job may not have begun yet."""
    file = Path(path)
    return file.read_text(errors="replace") if file.exists() else ""


@dataclass(slots=True)
class _Running:
    kind: str
    group: int
    place: str
    step: Path


@dataclass(slots=True)
class Walk:
    """A page in a folder. `problems` is empty if each command did what the page says."""

    page: Path
    folder: Path
    home: Path
    #: Whether the program is there, so that the commands that install it are left out.
    installed: bool = False
    #: Receives each command after it was tried, with the seconds that it took.
    tell: Callable[[str], None] = lambda _: None
    problems: list[str] = field(default_factory=list)
    #: Programs that were lacking for commands instead of those that cannot run here.
    lacking: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    _running: list[_Running] = field(default_factory=list)

    def walk(self) -> None:
        """Try the commands of the page. The first one that fails ends it, because the others need what it does."""
        variables = {"PAGES": str(Path(__file__).parent)}
        if self.page.name != "quickstart.md" or self.installed:
            variables["PATH"] = f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}"
        if not self.installed:
            variables["PYTHONPATH"] = ""
        terminal = Terminal(self.folder, self.home, variables)
        where = str(self.page.relative_to(ROOT))
        need = given(self.page)
        for number, (block, _) in enumerate(each for each in blocks(self.page) if each[0].language == "yaml"):
            (self.home / f"{number + 1}.yaml").write_text(block.text)
        try:
            if not self._prepared(terminal, need.first, f"{where}, before the first command"):
                return
            for each in typed(self.page):
                where = each.place
                begun = time.monotonic()
                done = self._try(terminal, each, need)
                self.seconds[each.place] = time.monotonic() - begun
                self.tell(f"{self.seconds[each.place]:6.1f} s  {each.place}  {each.text.splitlines()[0]}")
                if not done:
                    return
            while self._running:
                self._interrupt(terminal, self._running[-1])
        except Ended as error:
            self._fail(where, "", str(error))
        finally:
            left = terminal.close()
        if left and not self.problems:
            self.problems.append(f"{self.page.relative_to(ROOT)} leaves running: {left}")

    def _try(self, terminal: Terminal, each: Typed, need: Given) -> bool:
        before = next((script for start, script in need.before.items() if each.text.startswith(start)), "")
        if before and not self._prepared(
            terminal, self._again() if before == AGAIN else before, f"before {each.place}"
        ):
            return False
        row = row_of(each)
        text = each.text if row is None else row.script(each)
        if row is not None and row.program and not (text := self._with_program(row.program, text)):
            return True
        for placeholder, stands_for in need.placeholders.items():
            text = text.replace(placeholder, stands_for)
        if not text or (self.installed and (INSTALLING.match(text) or text.startswith("make demo"))):
            return True
        if INSTALLING.match(text):
            # In the same folder, but with the network of this machine.
            done = subprocess.run(
                ["bash", "-c", text],
                cwd=self.folder,
                env={**terminal.environment, "HOME": os.environ.get("HOME", "/")},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            return self._judged(each, text, Outcome(done.returncode, done.stdout, done.stderr))
        if (goes_on := GOING_ON.match(text)) and not text.endswith("&"):
            return self._started(terminal, each, text, goes_on[1])
        return self._judged(each, text, terminal.run(text), compare=row is None)

    def _prepared(self, terminal: Terminal, script: str, where: str) -> bool:
        for _, text in whole_commands(script):
            done = terminal.run(text)
            if done.code:
                self._fail(where, text, f"exit code {done.code}\n{done.out}{done.err}")
                return False
        return True

    def _again(self) -> str:
        """Return what kubectl does above, from the first pod to the gang."""
        found = [each.text for each in typed(self.page)]
        first, last = (next(at for at, text in enumerate(found) if name in text) for name in ("pod.yaml", "gated.yaml"))
        return "\n".join(text for text in found[first:last] if text.startswith("kubectl"))

    def _with_program(self, program: str, text: str) -> str:
        """Return a script with the path of a program; "" if it is lacking."""
        fetched = ROOT / "build" / "tools" / program
        found = str(fetched) if fetched.exists() else shutil.which(program)
        if found is None:
            self.lacking.add(program)
            return ""
        return text.replace(program, found, 1)

    def _judged(self, each: Typed, text: str, done: Outcome, *, compare: bool = True) -> bool:
        why = f"exit code {done.code}" if done.code else ""
        if not why and compare and each.shown:
            why = _first_line_differs(done.out, each.shown) if each.is_example else differs(done.out, each.shown)
        if why:
            self._fail(each.place, text, f"{why}\n{done.out}{done.err}")
        return not why

    def _started(self, terminal: Terminal, each: Typed, text: str, kind: str) -> bool:
        """Start a program in another terminal and wait until it is ready."""
        for running in self._running:
            if running.kind == kind:
                self._interrupt(terminal, running)
        if each.has_next:
            self._fail(each.place, text, "goes on until Ctrl-C, so a reader never gets to the next line of its block")
            return False
        group, step = terminal.start(text)
        self._running.append(_Running(kind, group, each.place, step))
        end = time.monotonic() + PATIENCE
        while not re.search(r"cluster ready at |\"event\": ?\"synced\"", said := _said(step)):
            if terminal.run(f"kill -0 {group}").code or time.monotonic() > end:
                self._fail(each.place, text, f"does not get ready:\n{said}")
                return False
            time.sleep(0.05)
        return True

    def _interrupt(self, terminal: Terminal, running: _Running) -> None:
        self._running.remove(running)
        if code := terminal.interrupt(running.group):
            self._fail(running.place, "Ctrl-C", f"exit code {code}\n{_said(running.step)}")

    def _fail(self, where: str, text: str, why: str) -> None:
        logs = "".join(
            f"\n--- {log.name}\n{log.read_text(errors='replace')[-_TAIL:]}"
            for log in (*self.home.glob("*.log"), *self.folder.glob("*.log"))
        )
        self.problems.append(f"{where}: {text.strip()}\n{why[-_TAIL:]}{logs}")


def _said(step: Path) -> str:
    return _read(f"{step}.out") + _read(f"{step}.err")


def _first_line_differs(said: str, shown: str) -> str:
    first = shown.splitlines()[0].split()
    if first == ["..."] or first in [line.split() for line in said.splitlines()]:
        return ""
    return f"the page shows the line {' '.join(first)!r}"


# ---- folders


def clone(folder: Path) -> None:
    """Clone this checkout into `folder`, with its changes that are not committed.

    Raises CalledProcessError if this is not a checkout.
    """

    def git(*words: str, where: Path = ROOT) -> str:
        return subprocess.run(["git", "-C", where, *words], check=True, capture_output=True, text=True).stdout

    git("clone", "--quiet", str(ROOT), str(folder))
    for name in filter(None, git("ls-files", "-z", "--modified", "--others", "--exclude-standard").split("\0")):
        shutil.copy(ROOT / name, folder / name) if (ROOT / name).exists() else (folder / name).unlink()


def copy(folder: Path) -> None:
    """Fill `folder` with this checkout without its environment: `config`, which pages change, and links to the rest."""
    folder.mkdir()
    for each in ROOT.iterdir():
        if each.name == "config":
            shutil.copytree(each, folder / each.name)
        elif not each.name.startswith(".") and each.name not in ("build", "out"):
            (folder / each.name).symlink_to(each)


def own_environment(folder: Path) -> None:
    """Give a folder the environment of this process."""
    (folder / ".venv").symlink_to(sys.prefix)


def made(folder: Path) -> None:
    """Make the environment of a clone. Raises CalledProcessError."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MAKE", "MFLAGS"))}
    subprocess.run(
        ["make", ".venv/.installed"], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )


def begun(page: Path, place: Path, of: Path | None) -> Walk:
    """Return the walk of a page in a folder in `place`: a clone of the clone `of`, or a copy of this checkout.

    Its environment is that of `of`. README.md is walked in `of` itself, and docs/quickstart.md makes its own.
    """
    place.mkdir()
    (place / "home").mkdir()
    folder = place / "work"
    if of is None:
        copy(folder)
        own_environment(folder)
    elif page == ROOT / "README.md":
        folder = of
    else:
        subprocess.run(["git", "clone", "--quiet", of, folder], check=True)
        if page.name != "quickstart.md":
            (folder / ".venv").symlink_to(of / ".venv")
    return Walk(page, folder, place / "home", installed=of is None)
