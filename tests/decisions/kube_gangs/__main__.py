"""How many cases of each kind go as recorded, and in what the others differ."""

from __future__ import annotations

from collections import Counter

from .cases import cases, is_by_chance, judged

total: Counter[str] = Counter()
equal: Counter[str] = Counter()
for case in cases():
    found = judged(case)
    total[case["kind"]] += 1
    if not found.differences and not found.broken:
        equal[case["kind"]] += 1
        continue
    print(f"{case['id']} {case['kind']} {case['features']}{' (by chance)' if is_by_chance(case) else ''}")
    for each in (*found.broken, *found.differences):
        print(f"    {each}")
for kind in sorted(total):
    print(f"{kind}: {equal[kind]} of {total[kind]}")
print(f"all: {equal.total()} of {total.total()}")
