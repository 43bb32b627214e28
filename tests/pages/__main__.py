"""`python -m tests.pages [PAGE ...]`: type the commands of pages, by default of all, in a clone of this checkout."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import table, walking


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("page", nargs="*", type=Path, help="a page that has shell commands (default: all)")
    parser.add_argument(
        "--installed", action="store_true", help="use this environment and these files instead of a clone and its own"
    )
    arguments = parser.parse_args()
    chosen = [page.resolve() for page in arguments.page] or table.pages()
    if unknown := [str(page) for page in chosen if page not in table.pages()]:
        parser.error(f"no page with commands: {', '.join(unknown)}")
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not arguments.installed:
            print("a clone, and its environment", flush=True)
            walking.clone(folder / "clone")
            walking.made(folder / "clone")
        for number, page in enumerate(chosen):
            walk = walking.begun(page, folder / str(number), None if arguments.installed else folder / "clone")
            walk.tell = lambda line: print(line, flush=True)
            walk.walk()
            problems += walk.problems
            for program in sorted(walk.lacking):
                print(f"without {program}, which is not here, some commands were not tried in its way")
    print(*problems, sep="\n\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
