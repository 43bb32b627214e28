"""Plots do not depend on the user's fonts, caches and configuration of matplotlib, and print nothing about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.font_manager import FontManager

from bench.harness.plots import svg

_DRAW = """
import sys
from bench.harness.plots import log_axis, svg
def draw(axes):
    axes.set_title("title")
    axes.plot([6, 60], [1, 2], label="line")
    axes.set_xscale("log")
    log_axis(axes.xaxis)
    axes.legend()
sys.stdout.write(svg("a plot", draw))
"""


def _cached(folder: Path, entries: list[dict[str, object]]) -> None:
    cache = vars(FontManager()) | {"ttflist": entries, "afmlist": [], "__class__": "FontManager"}
    (folder / f"fontlist-v{FontManager.__version__}.json").write_text(json.dumps(cache))


def _without_fonts(folder: Path) -> Path:
    _cached(folder, [])
    return folder


def _deleted_fonts(folder: Path) -> Path:
    font = {"name": "DejaVu Sans", "style": "normal", "variant": "normal", "weight": 400, "stretch": "normal"}
    _cached(
        folder, [{"fname": "/deleted/DejaVuSans.ttf", "index": 0, "size": "scalable", "__class__": "FontEntry", **font}]
    )
    return folder


def _own_configuration(folder: Path) -> Path:
    (folder / "matplotlibrc").write_text("no.such.key: 1\ntext.usetex: True\naxes.facecolor: red\n")
    return folder


def _unwritable(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file"


@pytest.mark.parametrize("prepare", [_without_fonts, _deleted_fonts, _own_configuration, _unwritable])
def test_a_plot_is_the_same_whatever_matplotlib_finds_on_the_machine(
    tmp_path: Path, prepare: Callable[[Path], Path]
) -> None:
    environment = {**os.environ, "MPLCONFIGDIR": str(prepare(tmp_path))}
    ran = subprocess.run(
        [sys.executable, "-c", _DRAW], check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    here: dict[str, Callable[..., None]] = {}
    exec(_DRAW.replace("sys.stdout.write", ""), here)
    assert ran.stdout == svg("a plot", here["draw"])
    # The axis has plain numbers only.
    assert [part.split("<")[0] for part in ran.stdout.split('">')[1:] if part[:1].isdigit()][:3] == ["10", "20", "50"]
