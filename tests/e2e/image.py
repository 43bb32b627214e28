"""Runs the steps of the Dockerfile in folders that replace images, and the result like a container.

No container engine is needed, but root, to mount and chroot. This Python replaces the base image: its program, standard
library and shared libraries as in python:slim, which has no byte code but has pip. Packages come from a folder that
this machine's pip has filled. Only those instructions of a Dockerfile are known that this project's file uses.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

#: Programs of the base that steps use or that a user of the image may look for.
_PROGRAMS = ("sh", "env", "cat", "ls", "rm", "mkdir", "cp", "true")
#: Libraries that every slim image has and wheels are built against: those of C and of C++.
_LIBRARIES = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"),
    *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6"),
)
#: Parts of the standard library that no slim image has.
_LEFT_OUT = "test tests idle_test idlelib tkinter __pycache__ site-packages dist-packages config-3*".split()  # noqa: SIM905
#: Environment of the base, as in its own Dockerfile.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

#: $1: the root; $2: ro or rw; $3: user; $4: its folder; then the command.
_ENTER = """
root=$1 mode=$2 user=$3 folder=$4; shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for each in null zero random urandom; do mount --bind "/dev/$each" "$root/dev/$each"; done
mount -o "remount,bind,$mode" "$root"
begin='PATH=$0; cd "$1" && shift && exec "$@"'
exec chroot --groups= --userspec="$user" "$root" /bin/sh -c "$begin" "$IMAGE_PATH" "$folder" "$@"
"""


@dataclass
class Image:
    """A root folder, and the settings of the steps so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(_ENVIRONMENT))
    folder: str = "/"
    user: str = "0:0"
    port: int = 0
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()

    def start(
        self,
        arguments: Sequence[str],
        *,
        read_only: bool = True,
        environment: Mapping[str, str] | None = None,
        **popen: object,
    ) -> subprocess.Popen[str]:
        """Start `arguments` as PID 1 of a container."""
        enter = [_program("unshare"), "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", _ENTER]
        settings = {**(environment or {}), **self.environment}
        # The programs of the host enter the container and those of the image run in it; each needs its own PATH.
        variables = {**settings, "PATH": os.defpath + ":/usr/sbin:/sbin", "IMAGE_PATH": settings["PATH"]}
        line = [*enter, "sh", str(self.root), "ro" if read_only else "rw", self.user, self.folder, *arguments]
        return subprocess.Popen(line, env=variables, text=True, stdin=subprocess.DEVNULL, **popen)

    def run(self, arguments: Sequence[str], **options: object) -> str:
        """Return the output of a command; raise with it unless the command ends with 0."""
        process = self.start(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        said, _ = process.communicate()
        if process.returncode:
            raise AssertionError(f"{arguments} ended with {process.returncode}:\n{said[-4000:]}")
        return said

    def files(self) -> dict[str, Path]:
        """Return all files by their paths in the image."""
        found = (Path(folder) / name for folder, _, names in os.walk(self.root) for name in names)
        return {f"/{file.relative_to(self.root)}": file for file in found}

    def inside(self, path: str) -> Path:
        return _at(self.root, os.path.normpath(os.path.join(self.folder, path)))


def cannot_enter(folder: Path) -> str:
    """Return why no container can be run here; empty if it can."""
    if os.geteuid() != 0:
        return "only root may run the steps of the Dockerfile"
    try:
        root = folder / "probe"
        _skeleton(root)
        Image(root).run(["true"])
    except (AssertionError, OSError) as error:
        return f"this machine allows no mounts, or has no unshare: {error}"
    return ""


def build(context: Path, folder: Path, wheels: Path) -> tuple[Image, Image]:
    """Return the base and the image of the Dockerfile in `context`, built in `folder` from the packages in `wheels`."""
    base = _make_base(folder / "base")
    context_sent = folder / "context"
    _send(context, context_sent)
    arguments: dict[str, str] = {}
    image, made = base, {"": context_sent}
    text = re.sub(r"^\s*#.*\n", "", (context / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction != "RUN":
            rest = Template(rest).substitute({**arguments, **image.environment})
        match instruction:
            case "":
                pass
            case "ARG":
                name, _, arguments[name] = rest.partition("=")
            case "FROM":
                _, *named = rest.split()
                image = Image(folder / (named[-1] if named else "final"))
                made[image.root.name] = image.root
                shutil.copytree(base.root, image.root, symlinks=True)
            case "ENV":
                image.environment |= dict(word.split("=", 1) for word in shlex.split(rest))
            case "WORKDIR":
                image.folder = os.path.join(image.folder, rest)
                image.inside(".").mkdir(parents=True, exist_ok=True)
            case "COPY":
                source, words = re.fullmatch(r"(?:--from=(\w+) )?([^-].*)", rest).groups("")
                *patterns, target = words.split()
                _copy(made[source], patterns, image.inside(target))
            case "RUN":
                _run(image, rest, wheels)
            case "USER":
                image.user = rest
            case "EXPOSE":
                image.port = int(rest)
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case "CMD":
                image.command = json.loads(rest)
            case _:
                raise ValueError(f"{instruction} is not known here")
    return base, image


def _run(image: Image, line: str, wheels: Path) -> None:
    """Run a step with packages from a folder as its only source."""
    shutil.copytree(wheels, image.root / "wheels", copy_function=os.link)
    given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    image.run(["/bin/sh", "-c", line], environment=given, read_only=False)
    shutil.rmtree(image.root / "wheels")


def _send(context: Path, into: Path) -> None:
    """Copy the files that a build receives: those that .dockerignore includes again after it excluded all."""
    lines = [line for line in (context / ".dockerignore").read_text().splitlines() if line[:1] not in ("#", "")]
    assert lines.pop(0) == "*"
    ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    for pattern in (line.removeprefix("!") for line in lines if line.startswith("!")):
        for path in context.glob(pattern):
            place = into / path.relative_to(context)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, place, ignore=ignored)
            else:
                shutil.copy2(path, place)


def _copy(source: Path, patterns: Sequence[str], into: Path) -> None:
    """Copy files by their names into a folder, and the content of folders."""
    into.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        found = sorted(source.glob(pattern.lstrip("/")))
        assert found, f"COPY finds no {pattern}"
        for path in found:
            if path.is_dir():
                shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(path, into / path.name, follow_symlinks=False)


def _make_base(root: Path) -> Image:
    """Return a base with this Python at its own paths, and links from where python:slim has it."""
    _skeleton(root)
    program = Path(sys._base_executable).resolve()
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    place = _at(root, library)
    shutil.copytree(library, place, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (place / "site-packages").mkdir(exist_ok=True)
    _add(root, program, *(library / "lib-dynload").glob("*.so"))
    for name in {"python", "python3", program.name}:
        link = root / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(program)
    base = Image(root)
    base.run(["python", "-m", "ensurepip"], read_only=False)
    if sys.version_info < (3, 12):  # pip alone from this version on
        base.run(["python", "-m", "pip", "uninstall", "--yes", "setuptools"], read_only=False)
    for compiled in [*place.rglob("__pycache__")]:
        shutil.rmtree(compiled)
    return base


def _skeleton(root: Path) -> None:
    for name in ("usr/local/bin", "bin", "lib", "etc", "proc", "dev", "tmp", "root"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("null", "zero", "random", "urandom"):
        (root / "dev" / name).touch()
    shell, *others = (Path(_program(name)) for name in _PROGRAMS)
    _add(root, shell, *others)
    if not (root / "bin/sh").exists():
        shutil.copy2(shell.resolve(), root / "bin/sh")
    libc = next(each for each in _needed(shell) if each.name == "libc.so.6")
    _add(root, *(libc.parent / name for name in _LIBRARIES if (libc.parent / name).exists()))


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def _at(root: Path, path: str | Path) -> Path:
    return root / str(path).lstrip("/")


def _add(root: Path, *files: Path) -> None:
    """Copy programs and libraries, each with those that it needs, to their own paths."""
    for file in files:
        for each in (file, *_needed(file)):
            if not (place := _at(root, each)).exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(each.resolve(), place)


def _needed(file: Path) -> list[Path]:
    """Return the libraries that the loader loads with a file."""
    libraries = subprocess.run([_program("ldd"), str(file)], check=False, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)", libraries, re.MULTILINE)]
