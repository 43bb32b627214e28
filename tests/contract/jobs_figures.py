"""`python -m tests.contract.jobs_figures`: steps of recorded scenarios with Jobs, by family and by rule."""

from __future__ import annotations

import logging
from collections import Counter

import structlog

from .jobs_replay import replay, scenarios


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    families: dict[str, Counter[str]] = {}
    rules: Counter[str] = Counter()
    for scenario in scenarios():
        counts = families.setdefault(scenario["family"], Counter())
        outcome = replay(scenario)
        counts["scenarios"] += 1
        for differences, argued in zip(outcome.differences, outcome.argued, strict=True):
            counts["unequal" if differences else "argued" if argued else "equal"] += 1
            rules.update(argued)
    columns = ("scenarios", "equal", "argued", "unequal")
    print(f"{'family':12}", *(f"{each:>10}" for each in columns))
    for family, counts in sorted(families.items()):
        print(f"{family:12}", *(f"{counts[each]:10}" for each in columns))
    total = sum(families.values(), Counter())
    print(f"{'all':12}", *(f"{total[each]:10}" for each in columns))
    for rule, number in rules.most_common():
        print(f"{number:6} {rule}")


if __name__ == "__main__":
    main()
