"""The table of folders names each module once."""

from __future__ import annotations

from pathlib import Path

from embedded_kubernetes import __path__ as shipped

from . import FOLDERS
from . import __doc__ as page


def test_every_module_is_tested_in_one_folder_that_the_docstring_describes() -> None:
    (source,) = map(Path, shipped)
    names = {place.stem for place in source.iterdir() if place.suffix == ".py" or (place / "__init__.py").exists()}
    assert sorted(name for found in FOLDERS.values() for name in found) == sorted(names - {"__init__"})
    folders = {place.parent.name for place in Path(__file__).parent.glob("*/test_*.py")}
    assert folders == {*FOLDERS, "clients", "contract"}
    assert all(f"\n- {folder}: " in (page or "") for folder in folders)
