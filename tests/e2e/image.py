"""Runs the steps of the Dockerfile in folders that stand for images, and what comes of them as a container is run.

No engine is needed, but root, who may mount and chroot. The base image is stood in for by this Python: its program,
standard library and shared libraries as python:slim has them, which is without byte code and with pip.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .dockerfile import BASE_ENVIRONMENT, Stage, Step, parse, sent

#: Of the base's programs, those that steps use or that a user of the image may look for.
_PROGRAMS = ("sh", "env", "cat", "ls", "rm", "mkdir", "cp", "true")
#: Wheels are built against what every slim image has: the C library in its parts, and C++'s.
_LIBRARIES = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"),
    *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6"),
)
#: What names servers and certificates to a step, as an engine and its proxy would.
_GIVEN = re.compile(r"PIP_\w+|(?i:https?_proxy|no_proxy)|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE")
_NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")

#: $1: the root; $2: ro or rw; $3: user; $4: its folder; then what is mounted into it, `--`, and the command.
_ENTER = """
root=$1 mode=$2 user=$3 folder=$4; shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
while [ "$1" != -- ]; do mount --bind "$1" "$root$1"; mount -o remount,bind,ro "$root$1"; shift; done; shift
mount -t proc proc "$root/proc"
for each in null zero random urandom; do mount --bind "/dev/$each" "$root/dev/$each"; done
mount -o "remount,bind,$mode" "$root"
begin='PATH=$0; cd "$1" && shift && exec "$@"'
exec chroot --groups= --userspec="$user" "$root" /bin/sh -c "$begin" "$IMAGE_PATH" "$folder" "$@"
"""


@dataclass
class Image:
    """A root, and what the steps so far say of it."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    folder: str = "/"
    user: str = "0:0"
    ports: tuple[int, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def start(
        self,
        arguments: Sequence[str],
        *,
        read_only: bool = True,
        mounts: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        user: str = "",
        **popen: object,
    ) -> subprocess.Popen[str]:
        """`arguments` as PID 1 of a container; `mounts` are given read-only, at their own paths."""
        enter = [_program("unshare"), "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", _ENTER]
        settings = {**self.environment, **(environment or {})}
        # The host's programs enter, the image's are run: each finds its own.
        variables = {**settings, "PATH": os.defpath + ":/usr/sbin:/sbin", "IMAGE_PATH": settings["PATH"]}
        place = [str(self.root), "ro" if read_only else "rw", user or self.user, self.folder]
        line = [*enter, "sh", *place, *mounts, "--", *arguments]
        return subprocess.Popen(line, env=variables, text=True, stdin=subprocess.DEVNULL, **popen)

    def run(self, arguments: Sequence[str], *, check: bool = True, **options: object) -> str:
        """What it printed; raises with it unless it ends with 0 or `check` is false."""
        process = self.start(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        said, _ = process.communicate()
        if check and process.returncode:
            raise AssertionError(f"{arguments} ended with {process.returncode}:\n{said[-4000:]}")
        return said

    def files(self) -> dict[str, Path]:
        """All but folders, by their paths in the image."""
        found = (Path(folder) / name for folder, _, names in os.walk(self.root) for name in names)
        return {f"/{file.relative_to(self.root)}": file for file in found}


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def cannot_enter(folder: Path) -> str:
    """Why no container can be run here; empty if it can."""
    if os.geteuid() != 0:
        return "only root may run the steps of the Dockerfile"
    try:
        root = folder / "probe"
        _skeleton(root)
        Image(root).run(["true"])
    except (AssertionError, OSError) as error:
        return f"this machine allows no mounts, or has no unshare: {error}"
    return ""


def build(context: Path, folder: Path) -> tuple[Image, Image]:
    """The base, and the image of the Dockerfile in `context`, both in `folder`."""
    base = make_base(folder / "base")
    stages = parse((context / "Dockerfile").read_text())
    made: dict[str, Image] = {}
    for number, stage in enumerate(stages):
        root = folder / (stage.name or f"stage-{number}")
        shutil.copytree(base.root, root, symlinks=True)
        made[stage.name or str(number)] = image = Image(root)
        _run_stage(stage, image, context, made)
    return base, image


def _run_stage(stage: Stage, image: Image, context: Path, made: Mapping[str, Image]) -> None:
    for step in stage.steps:
        match step.instruction:
            case "ENV":
                image.environment |= dict(word.split("=", 1) for word in step.words)
            case "WORKDIR":
                image.folder = os.path.join(image.folder, step.words[0])
                _inside(image, ".").mkdir(parents=True, exist_ok=True)
            case "COPY" if "from" in step.flags:
                source = made[step.flags["from"]].root
                _copy(step, image, source, [])
            case "COPY":
                _copy(step, image, context, list(sent(context)))
            case "RUN":
                with _pip_settings(image.root) as (given, mounts):
                    options = {"read_only": False, "mounts": mounts, "user": image.user}
                    # What the Dockerfile says of pip is said later, and stands.
                    environment = {**given, **image.environment}
                    image.run(["/bin/sh", "-c", *step.words], environment=environment, **options)
            case "USER":
                image.user = step.words[0]
            case "EXPOSE":
                image.ports = tuple(int(word) for word in step.words)
            case "ENTRYPOINT":
                image.entrypoint = step.words
            case "CMD":
                image.command = step.words


def _inside(image: Image, path: str) -> Path:
    return image.root / os.path.normpath(os.path.join(image.folder, path)).lstrip("/")


def _copy(step: Step, image: Image, source: Path, context: Sequence[Path]) -> None:
    """Files go by their names into a folder, folders as their content; of the context, what is sent."""
    *patterns, target = step.words
    into = _inside(image, target)
    names = [
        str(each.relative_to(source))
        for pattern in patterns
        for each in sorted(source.glob(pattern.lstrip("/")))
    ]
    if not names:
        raise AssertionError(f"line {step.line}: COPY finds no {' '.join(patterns)}")
    for name in names:
        path = source / name.lstrip("/")
        if source == image.root or not context:
            files = [
                each.relative_to(source)
                for each in [path, *path.rglob("*")]
                if not each.is_dir() or each.is_symlink()
            ]
        else:
            files = [each for each in context if each == Path(name) or Path(name) in each.parents]
        if not files:
            raise AssertionError(f"line {step.line}: COPY finds no {name}")
        for file in files:
            below = into / (source / file).relative_to(path)
            if path.is_file():
                below = into / path.name if target.endswith("/") or len(names) > 1 else into
            below.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / file, below, follow_symlinks=False)


@contextmanager
def _pip_settings(root: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Where this machine's pip finds packages, as variables, and what these and the network need of its files, for
    which there are places in `root` meanwhile."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    given = {name: value for name, value in os.environ.items() if _GIVEN.fullmatch(name)}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in ("global", "install"):
            given.setdefault(f"PIP_{key.upper().replace('-', '_')}", ast.literal_eval(value))
    # An index in a folder names files beside its pages.
    words = [
        str(Path(word.removeprefix("file://")).parent) if word.startswith("file://") else word
        for value in given.values()
        for word in value.split()
    ]
    paths = {word for word in words if word.startswith("/") and os.path.exists(word)}
    mounts = sorted(paths | {name for name in _NAMES if os.path.exists(name)})
    places = [place for path in mounts for place in _make_place(root, Path(path))]
    try:
        yield given, mounts
    finally:
        for place in reversed(places):
            if not place.is_dir():
                place.unlink()
            elif not any(place.iterdir()):  # the step may have put something there
                place.rmdir()


def _make_place(root: Path, path: Path) -> Iterator[Path]:
    """Makes what is to be mounted over, and yields all that was not there."""
    for each in (*reversed(path.parents), path):
        place = root / str(each).lstrip("/")
        if not place.exists():
            place.mkdir() if each.is_dir() else place.touch()
            yield place


def make_base(root: Path) -> Image:
    """This Python, at its own paths, and linked to where python:slim has it."""
    _skeleton(root)
    program = Path(sys._base_executable).resolve()
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    config = sysconfig.get_config_var("LIBPL") or ""
    left_out = {
        "test",
        "tests",
        "idle_test",
        "idlelib",
        "tkinter",
        "__pycache__",
        "site-packages",
        "dist-packages",
    }
    shutil.copytree(
        library,
        _at(root, library),
        symlinks=True,
        ignore=lambda _, names: (left_out | {Path(config).name}) & set(names),
    )
    (_at(root, library) / "site-packages").mkdir(exist_ok=True)
    _add_program(root, program)
    for extension in (library / "lib-dynload").glob("*.so"):
        _add_libraries(root, extension)
    for name in ("python", "python3", program.name):
        link = root / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(program)
    base = Image(root)
    base.run(["python", "-m", "ensurepip"], read_only=False)
    if sys.version_info < (3, 12):  # since then it brings pip alone
        base.run(["python", "-m", "pip", "uninstall", "--yes", "setuptools"], read_only=False)
    for compiled in [*_at(root, library).rglob("__pycache__")]:
        shutil.rmtree(compiled)
    return base


def _skeleton(root: Path) -> None:
    for name in ("usr/local/bin", "bin", "lib", "etc", "proc", "dev", "tmp", "root"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("null", "zero", "random", "urandom"):
        (root / "dev" / name).touch()
    for name in _PROGRAMS:
        program = Path(_program(name))
        _add_program(root, program)
        if name == "sh":
            shutil.copy2(program.resolve(), root / "bin/sh")
    libc = next(each for each in _needed(Path(_program("sh"))) if each.name == "libc.so.6")
    for name in _LIBRARIES:
        if (libc.parent / name).exists():
            _add(root, libc.parent / name)


def _at(root: Path, path: Path) -> Path:
    return root / str(path).lstrip("/")


def _add(root: Path, file: Path) -> None:
    place = _at(root, file)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file.resolve(), place)


def _add_program(root: Path, program: Path) -> None:
    _add(root, program)
    _add_libraries(root, program)


def _add_libraries(root: Path, file: Path) -> None:
    for library in _needed(file):
        _add(root, library)


def _needed(file: Path) -> list[Path]:
    """What the loader loads with it."""
    told = subprocess.run([_program("ldd"), str(file)], check=False, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)", told, re.MULTILINE)]
