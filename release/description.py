"""The long descriptions of the distributions: README.md for readers who do not have the repository.

A link to a file of the repository becomes one to the file at the tag of the release. Without the URL of a repository it
becomes the path of the file, and a picture its description. So do pictures in HTML.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
#: Pictures in HTML, which have a width or are for one color scheme.
_SOURCE = re.compile(r'(src|srcset)="([^"\s]+)"')
_IMAGE = re.compile(r'<img [^>]*?alt="([^"]*)"[^>]*>')
_MARKS = re.compile(r"</?picture>\n?| *<source [^>]*>\n?")
_CODE = re.compile(r"(^```.*?^```|^    .*?$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def long_description(text: str, folder: str, *, url: str, tag: str) -> str:
    """Return the text of the README.md in `folder`. `url` is the repository's, or empty."""

    def linked(match: re.Match[str]) -> str:
        picture, said, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match.group()
        path, mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        if not url:
            return said if picture or said in (path, f"`{path}`") else f"{said} ({path})"
        kind = "raw" if picture else "blob"
        return f"{picture}[{said}]({url}/{kind}/{tag}/{path}{mark}{anchor})"

    def shown(match: re.Match[str]) -> str:
        name, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group()
        return f'{name}="{url}/raw/{tag}/{posixpath.normpath(posixpath.join(folder, target))}"'

    def prose(part: str) -> str:
        part = _SOURCE.sub(shown, part) if url else _IMAGE.sub(r"\1", _MARKS.sub("", part))
        return _LINK.sub(linked, part)

    # Every second part is code.
    parts = _CODE.split(text)
    return "".join(part if index % 2 else prose(part) for index, part in enumerate(parts))


def project_urls(folder: str, *, url: str, tag: str, changelogs: Mapping[str, str]) -> str:
    """Return the table `[project.urls]` of a pyproject.toml, or nothing without the URL of a repository.

    `changelogs` has the path of a distribution's changelog by its folder; others have the repository's.
    """
    if not url:
        return ""
    at = f"{url}/blob/{tag}"
    pages = "docs/README.md" if folder == "." else posixpath.join(folder, "README.md")
    urls = {
        "Homepage": url,
        "Documentation": f"{at}/{pages}",
        "Source": f"{url}/tree/{tag}",
        "Changelog": f"{at}/{changelogs.get(folder, 'CHANGELOG.md')}",
        "Issues": f"{url}/issues",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{each}"\n' for name, each in urls.items())
