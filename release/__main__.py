"""Makes all files of a release in `dist`, and sets its tag in this clone. It pushes nothing.

   python -m release X.Y.Z [--dry-run]

Everything is made of the commit, not of the working tree, with its time: the same commit gives the same files, byte for
byte, except for the image. The first problem ends it, with one line and without a tag.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.support.kustomize import plainly

from .description import long_description, project_urls
from .versions import DISTRIBUTIONS, FORM, ROOT, found

#: Folders of config that are installed by themselves.
MANIFESTS = ("crd", "default", "controllers", "webhook", "gate-policy")
#: Folder of a distribution -> its own changelog.
CHANGELOGS = {
    folder: f"{folder}/CHANGELOG.md"
    for folder in DISTRIBUTIONS
    if folder != "." and (ROOT / folder / "CHANGELOG.md").exists()
}
CHECKS = ("make check", "make test")
ENGINES = ("docker", "podman")


class Refused(Exception):
    """There is no release. The message says why, and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    version: str
    #: The repository's URL for readers, or empty.
    url: str
    #: The image's name in manifests and chart, without its tag.
    image: str
    #: The commit's time, in seconds since 1970.
    time: int

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    def name(self, rest: str) -> str:
        return f"agent-scheduler-{self.version}{rest}"


def _git(*words: str) -> str:
    """Return the output of git. Raises Refused with what git says."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


# ---- what must hold


def check(version: str, checks: Sequence[str]) -> str:
    """Return the changelog's entry of the version. Raises Refused for the first condition that does not hold."""
    if not FORM.fullmatch(version):
        raise Refused(f"found the version {version!r}; allowed: X.Y.Z, three numbers (make release VERSION=X.Y.Z)")
    if changed := _changed():
        raise Refused(f"the working tree has changes that no commit has: {changed}")
    if _git("tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists")
    other = [f"{place} has {there}" for place, there in found() if there != version]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise Refused(
            f"not all have the version {version}: {', '.join(other[:3])}{more}; run: make version VERSION={version}"
        )
    entries = [entry_of(version, path) for path in ("CHANGELOG.md", *CHANGELOGS.values())]
    for command in checks:
        if code := subprocess.run(shlex.split(command), cwd=ROOT, check=False).returncode:
            raise Refused(f"`{command}` ended with {code}")
    if changed := _changed():
        raise Refused(f"the checks have changed files: {changed}")
    return entries[0]


def check_output(folder: Path) -> None:
    """Raise Refused for a folder that has files, but not those of a release, since it is replaced."""
    is_release = folder == ROOT / "dist" or (folder / "SHA256SUMS").exists()
    if folder.exists() and not is_release and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists and has no SHA256SUMS of a release; remove it, or give another --output")


def _changed() -> str:
    """Return the first changed files, or an empty text."""
    files = [line.split(maxsplit=1)[1] for line in _git("status", "--porcelain").splitlines()]
    return ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")


def entry_of(version: str, path: str) -> str:
    """Return the entry of the version in a changelog. Raises Refused without a dated entry."""
    text = (ROOT / path).read_text()
    match = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if match is None or not match.group(1).strip():
        raise Refused(f"{path} has no entry `## {version} - YYYY-MM-DD` with text")
    return match.group(1).strip()


def url_of(remote: str) -> str:
    """Return the address of a remote's pages, or an empty text for one that names no host."""
    match = re.fullmatch(
        r"(?:https://(?:[^@/]*@)?|ssh://git@|git@)([\w.-]+\.\w+)[:/](?:\d+/)?(.+?)(?:\.git)?/?", remote
    )
    return f"https://{match.group(1)}/{match.group(2)}" if match else ""


# ---- what it makes


def stage(release: Release, folder: Path) -> None:
    """Unpack the commit, with long descriptions and URLs for readers elsewhere, and the image's name."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="tar")
    for each in DISTRIBUTIONS:
        readme, project = folder / each / "README.md", folder / each / "pyproject.toml"
        readme.write_text(long_description(readme.read_text(), each, url=release.url, tag=release.tag))
        urls = project_urls(each, url=release.url, tag=release.tag, changelogs=CHANGELOGS)
        project.write_text(project.read_text() + urls)
    if release.url:
        package = folder / "src" / "agent_scheduler" / "__init__.py"
        pages = f"{release.url}/blob/{release.tag}/docs/README.md"
        package.write_text(
            re.sub(r"^DOCUMENTATION = .*$", f'DOCUMENTATION = "{pages}"', package.read_text(), flags=re.MULTILINE)
        )
    for file in (folder / "config").rglob("*.yaml"):
        text = file.read_text()
        changed = re.sub(
            r"^(\s+(?:newName|repository): )agent-scheduler$", rf"\g<1>{release.image}", text, flags=re.MULTILINE
        )
        if release.url:
            changed = changed.replace("runbook: docs/", f"runbook: {release.url}/blob/{release.tag}/docs/")
        if changed != text:
            file.write_text(changed)


def distributions(release: Release, folder: Path, target: Path) -> None:
    for each in DISTRIBUTIONS:
        _run("-m", "hatchling", "build", "-d", str(target), folder=folder / each, time=release.time)


def _run(*words: str, folder: Path, time: int) -> None:
    """Run Python in a folder. Raises Refused with its last words."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"`python {' '.join(words)}` failed in {folder.name}: {done.stderr.strip()[-400:]}")


def chart(release: Release, folder: Path, target: Path) -> None:
    """Pack the chart as `helm package` does."""
    pack(
        folder / "config" / "helm" / "agent-scheduler",
        "agent-scheduler",
        target / release.name(".tgz"),
        time=release.time,
    )


def manifests(release: Release, folder: Path, target: Path) -> None:
    """Write what `kubectl kustomize` prints for each part."""
    for part in MANIFESTS:
        rendered = yaml.safe_dump_all(plainly(folder / "config" / part), sort_keys=False, width=10_000)
        (target / release.name(f"-{part}.yaml")).write_text(rendered)


def docs(release: Release, target: Path) -> None:
    """Pack all pages and pictures, and the manifests and samples that they name."""
    listed = _git("ls-files", "*.md", "docs", "config", "bench/results", "LICENSE").splitlines()
    name = f"agent-scheduler-docs-{release.version}"
    files = {path: ROOT / path for path in listed if not path.startswith("tests/")}
    _packed(files, name, target / f"{name}.tar.gz", time=release.time)


def bill(release: Release, target: Path) -> None:
    output = target / release.name(".cdx.json")
    _run(
        "-m",
        "requirements.sbom",
        "-o",
        str(output),
        "--project-version",
        release.version,
        folder=ROOT,
        time=release.time,
    )


def image(release: Release, folder: Path, target: Path) -> str:
    """Build the image with the base's current digest, and save it. Return why not, or an empty text."""
    engine = next((each for each in ENGINES if shutil.which(each) and _works(each)), None)
    tag = f"{release.image}:{release.version}"
    if engine is None:
        return f"no {' or '.join(ENGINES)} with a running engine is here; in the tag: docker build -t {tag} ."
    match = re.search(r"^ARG PYTHON_IMAGE=(\S+)", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert match is not None
    base = match.group(1)
    _engine(engine, "pull", "--quiet", base)
    digest = _engine(engine, "image", "inspect", "--format", "{{index .RepoDigests 0}}", base).strip()
    pinned = f"{base}@{digest.rpartition('@')[2]}"
    given = ("--build-arg", f"PYTHON_IMAGE={pinned}", "--build-arg", f"SOURCE_DATE_EPOCH={release.time}")
    _engine(engine, "build", *given, "-t", tag, str(folder))
    _engine(engine, "save", "-o", str(target / release.name("-image.tar")), tag)
    return ""


def _works(engine: str) -> bool:
    try:
        return not subprocess.run([engine, "info"], check=False, capture_output=True, timeout=60).returncode
    except subprocess.TimeoutExpired:
        return False


def _engine(engine: str, *words: str) -> str:
    done = subprocess.run([engine, *words], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Refused(f"`{engine} {words[0]}` ended with {done.returncode}")
    return done.stdout


def pack(folder: Path, name: str, target: Path, *, time: int) -> None:
    """Pack a folder, as `name`."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    _packed(files, name, target, time=time)


def _packed(files: Mapping[str, Path], name: str, target: Path, *, time: int) -> None:
    """Pack files by path, with nothing of this machine in the archive."""
    with (
        target.open("wb") as out,
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=time) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        for path in sorted(files):
            content = files[path].read_bytes()
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), time, 0o644
            packed.addfile(entry, io.BytesIO(content))


def sums(target: Path) -> None:
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(target.iterdir())]
    (target / "SHA256SUMS").write_text("".join(lines))


def make(release: Release, target: Path) -> str:
    """Make all files. Return why there is no image, or an empty text."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        stage(release, folder)
        steps: dict[str, Callable[[], None]] = {
            "wheels and source distributions": lambda: distributions(release, folder, target),
            "chart": lambda: chart(release, folder, target),
            "manifests": lambda: manifests(release, folder, target),
            "documentation": lambda: docs(release, target),
            "bill of materials": lambda: bill(release, target),
        }
        for step, do in steps.items():
            print(f"release: {step}", flush=True)
            do()
        print("release: image", flush=True)
        missing = image(release, folder, target)
    sums(target)
    return missing


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__.split("\n")[0])
    parser.add_argument("version", metavar="X.Y.Z", help="the version, which the repository has already")
    parser.add_argument("--dry-run", action="store_true", help="check all conditions; make nothing")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="replaced (default: dist)")
    parser.add_argument(
        "--url", metavar="URL", help="address of the repository's pages (default: from the remote origin)"
    )
    parser.add_argument(
        "--image",
        default="agent-scheduler",
        metavar="NAME",
        help="image in manifests and chart, such as registry.example/agent-scheduler (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        metavar="COMMAND",
        action="append",
        help=f"a command that must succeed; repeatable (default: {', '.join(CHECKS)})",
    )
    args = parser.parse_args(arguments)
    try:
        check_output(args.output.resolve())
        entry = check(args.version, CHECKS if args.check is None else args.check)
        remote = _git("remote", "get-url", "origin") if "origin" in _git("remote").splitlines() else ""
        url = (url_of(remote) if args.url is None else args.url).rstrip("/")
        release = Release(version=args.version, url=url, image=args.image, time=int(_git("log", "-1", "--format=%ct")))
        if not url:
            print("release: no URL: the remote origin names no host, so descriptions have no links to files; see --url")
        if args.dry_run:
            print(f"release: {release.version} could be made, with the tag {release.tag}; nothing was written")
            return 0
        shutil.rmtree(args.output, ignore_errors=True)
        args.output.mkdir(parents=True)
        missing = make(release, args.output.resolve())
        _git(
            "tag",
            "--annotate",
            release.tag,
            "--cleanup=verbatim",
            "-m",
            f"agent-scheduler {release.version}\n\n{entry}",
        )
    except Refused as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    for each in sorted(args.output.iterdir()):
        print(f"{each.stat().st_size:>12,}  {each.name}")
    if missing:
        print(f"release: the image was skipped: {missing}")
    print(f"release: the tag {release.tag} is set in this clone only; push it with: git push origin {release.tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
