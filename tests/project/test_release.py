"""The parts of a release: versions, addresses and long descriptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_scheduler import __version__
from release.__main__ import Release, image, url_of
from release.description import long_description
from release.versions import DISTRIBUTIONS, found
from tests.support.places import ROOT

TAG = "v1.2.3"
URL = "https://host.example/owner/name"


#: An engine that notes its arguments.
ENGINE = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/log"
case "$1 $2" in
  "image inspect") echo "registry.example/python@sha256:0123" ;;
  "save -o") echo image > "$3" ;;
esac
"""


def test_the_image_is_built_on_the_current_digest_of_its_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Release(version="1.2.3", url="", image="registry.example/a", time=7)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    told = "no docker or podman with a running engine is here; in the tag: docker build -t registry.example/a:1.2.3 ."
    assert image(release, ROOT, tmp_path) == told
    (tmp_path / "docker").write_text(ENGINE)
    assert image(release, ROOT, tmp_path) == ""
    *_, build, save = (tmp_path / "log").read_text().splitlines()
    pinned = "--build-arg PYTHON_IMAGE=python:3.13-slim-trixie@sha256:0123 --build-arg SOURCE_DATE_EPOCH=7"
    assert build == f"build {pinned} -t registry.example/a:1.2.3 {ROOT}"
    assert (tmp_path / "agent-scheduler-1.2.3-image.tar").exists() and save.startswith("save -o ")


def test_every_place_has_the_version() -> None:
    assert {version for _, version in found()} == {__version__}
    assert len([*found()]) > 25


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://host.example/owner/name.git", URL),
        ("https://user:secret@host.example/owner/name", URL),
        ("git@host.example:owner/name.git", URL),
        ("ssh://git@host.example:2222/owner/name.git", URL),
        *((remote, "") for remote in ("/srv/name.git", "file:///srv/name.git", "../name", "host:name")),
    ],
)
def test_the_address_of_the_pages_is_that_of_a_remote_that_names_a_host(remote: str, url: str) -> None:
    assert url_of(remote) == url


@pytest.mark.parametrize(
    ("text", "at_a_host", "without"),
    [
        ("[jobs](docs/a.md#jobs)", f"[jobs]({URL}/blob/{TAG}/p/q/docs/a.md#jobs)", "jobs (p/q/docs/a.md)"),
        ("[x](../../README.md)", f"[x]({URL}/blob/{TAG}/README.md)", "x (README.md)"),
        ("[p/q/a.md](a.md)", f"[p/q/a.md]({URL}/blob/{TAG}/p/q/a.md)", "p/q/a.md"),
        ("![The console](i.png)", f"![The console]({URL}/raw/{TAG}/p/q/i.png)", "The console"),
        (
            '<picture>\n  <source srcset="d.png">\n  <img src="i.png" width="9%" alt="Nodes">\n</picture>',
            f'<picture>\n  <source srcset="{URL}/raw/{TAG}/p/q/d.png">\n'
            f'  <img src="{URL}/raw/{TAG}/p/q/i.png" width="9%" alt="Nodes">\n</picture>',
            "  Nodes\n",
        ),
        *((same, same, same) for same in ("[a](https://b.example)", "[a](#b)", "`[a](b.md)`", "```\n[a](b.md)\n```")),
    ],
)
def test_links_of_a_long_description_lead_to_the_tag(text: str, at_a_host: str, without: str) -> None:
    assert long_description(text, "p/q", url=URL, tag=TAG) == at_a_host
    assert long_description(text, "p/q", url="", tag=TAG) == without


@pytest.mark.parametrize("folder", DISTRIBUTIONS)
def test_long_descriptions_have_no_link_that_needs_the_repository_beside_them(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    for url in (URL, ""):
        made = long_description(text, folder, url=url, tag=TAG)
        prose = re.sub(r"^```.*?^```", "", made, flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|srcset)="([^"]+)"', prose)
        assert [link for link in links if not link.startswith(("https://", "#"))] == []
        for path in re.findall(rf"{URL}/\w+/{TAG}/([^)#\s\"]+)", made):
            assert (ROOT / path).exists(), path
