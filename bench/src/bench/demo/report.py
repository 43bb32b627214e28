"""The report of a run: one self-contained HTML file, readable on light and dark screens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path

from apimachinery.plural import counted
from bench.harness.audit import Audit

from .outcome import Outcome, duration
from .plots import all_plots

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --soft: #5b6675; --line: #d9dee5;
  --good: #0f7b4f; --bad: #c02626; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14181f; --soft: #9aa5b4; --line: #303844;
  --good: #4cc38a; --bad: #ff7b72; --card: #1b212a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1120px; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 36px 0 10px; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.verdict { margin: 18px 0; padding: 10px 14px; border-left: 4px solid; background: var(--card); }
.good { border-color: var(--good); } .bad { border-color: var(--bad); }
.good strong { color: var(--good); } .bad strong { color: var(--bad); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.figure { background: var(--card); padding: 10px 14px; border-radius: 6px; }
.figure b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; } table.pairs { max-width: 760px; }
th.number { width: 1%; }
td, th { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 22px; }
.plots svg { width: 100%; height: auto; } .wide { overflow-x: auto; }
@media (max-width: 500px) { .plots { grid-template-columns: 1fr; } }
"""


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f'<tr><td>{escape(a)}</td><td class="number">{escape(b)}</td></tr>' for a, b in rows)
    return f'<div class="wide"><table class="pairs">{body}</table></div>'


def _counts(title: str, rows: Iterable[tuple[int, str]], *, note: str = "") -> str:
    """Return a table of pods by reason; the reasons are HTML."""
    body = "".join(f'<tr><td class="number">{count:,}</td><td>{text}</td></tr>' for count, text in rows)
    head = '<tr><th class="number">pods</th><th>reason</th></tr>'
    return f'<h2>{escape(title)}</h2>{note}<div class="wide"><table>{head}{body}</table></div>'


def _refusals(audit: Audit) -> str:
    rows = (
        (count, f'{escape(text)}<br><span class="soft">{escape(example)}</span>')
        for text, count, example in audit.refused_by_gist()
    )
    note = '<p class="soft">Each reason is followed by its most common message.</p>'
    return _counts("Rejected, by the scheduler's reasons", rows, note=note)


def render(outcome: Outcome) -> str:
    """Return the page as one text."""
    values = outcome.as_json()
    failures = outcome.failures
    if failures:
        shown = "".join(f"<p>{escape(text)}</p>" for text in failures[:50])
        more = f"<p>and {len(failures) - 50:,} more</p>" if len(failures) > 50 else ""
        verdict = f'<div class="verdict bad"><strong>Failed</strong>{shown}{more}</div>'
    else:
        verdict = (
            '<div class="verdict good"><strong>OK</strong> Every pod that fits is bound, and by the API\'s own '
            "objects no node is over its allocatable.</div>"
        )
    latency = values["createToBindMs"]
    cpu = outcome.cpu_ms
    figures = [
        (f"{outcome.track.bound_count:,}", "pods bound"),
        (f"{outcome.pods_a_second:,.0f}/s", "rate of binds"),
        (duration(latency["p50"]), "create to bound, p50"),
        (duration(latency["p99"]), "create to bound, p99"),
        ("-" if cpu is None else f"{cpu:.3f} ms", "scheduler CPU per pod"),
        (f"{len(outcome.audit.overcommitted):,}", "nodes over allocatable"),
    ]
    cards = "".join(
        f'<div class="figure"><b>{escape(a)}</b><span class="soft">{escape(b)}</span></div>' for a, b in figures
    )
    plots = "".join(f"<div>{svg}</div>" for svg in all_plots(outcome))
    notes = "".join(f"<p class='soft'>{escape(note)}</p>" for note in outcome.workload.notes)
    parts = [
        f"<h1>agent-scheduler: {escape(outcome.workload.name)}</h1>",
        f'<p class="soft">{counted(len(outcome.workload.nodes), "node")}, '
        f"{counted(len(outcome.workload.pods), 'pod')}, {counted(outcome.workers, 'worker')}; "
        "embedded API server and scheduler as separate processes, over HTTP</p>",
        notes,
        verdict,
        f'<div class="figures">{cards}</div>',
        f'<h2>The run</h2><div class="plots">{plots}</div>',
        f"<h2>Figures</h2>{_table(outcome.rows())}",
    ]
    if outcome.audit.refused:
        parts.append(_refusals(outcome.audit))
    if outcome.hopeless:
        rows = ((count, escape(text)) for text, count in Counter(outcome.hopeless).most_common())
        parts.append(_counts("Of these, more than any empty node could hold", rows))
    parts.append(f"<h2>Machine and versions</h2>{_table(outcome.machine.items())}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>agent-scheduler: {escape(outcome.workload.name)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def write_report(outcome: Outcome, file: Path) -> None:
    """Write the page, and create its folder if necessary. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(outcome), encoding="utf-8")
