"""Puts each fault of the list into the code, runs the tests that should fail, and reports the one that did.

Run it with `python -m tests.mutants`. Exit codes: 0 if every mutant was caught, 1 if one survived, 2 if there is no
result: a mutant does not fit, or the tests fail without any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.support.places import ROOT

from .catalogue import Mutant, MutantError, Tree, all_mutants, mutated
from .trying import Trial, add_arguments, sampled, verdicts_of


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults, by name")
    add_arguments(parser, timeout=120.0)
    options = parser.parse_args(arguments)
    try:
        mutants = _chosen(all_mutants(), options.only)
        if options.sample is not None:
            mutants = sampled(mutants, options.sample, options.seed)
            names = " ".join(mutant.name for mutant in mutants)
            print(f"a sample; again: python -m tests.mutants --only {names}", flush=True)
        tree = Tree(ROOT)
        trials = [Trial(f"{each.name}: {each.breaks}", mutated(each, tree), _stages(each)) for each in mutants]
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    words = {each.verdict for each in verdicts_of(trials, options)}
    return 2 if "broken" in words else int("survived" in words)


def _chosen(mutants: list[Mutant], only: Sequence[str] | None) -> list[Mutant]:
    if unknown := sorted({*(only or ())} - {mutant.name for mutant in mutants}):
        raise MutantError(f"no such fault: {', '.join(unknown)}")
    return [mutant for mutant in mutants if not only or mutant.name in only]


def _stages(mutant: Mutant) -> list[list[str]]:
    """Return each path of its tests; a missing one is skipped if another exists."""
    paths = [[path] for path in mutant.caught_by if (ROOT / path).exists()]
    if not paths:
        raise MutantError(f"{mutant.name}: none of {', '.join(mutant.caught_by)} exists")
    return paths


if __name__ == "__main__":
    sys.exit(main())
