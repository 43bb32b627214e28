"""The benchmarks are all there, and their report says when one did not run. What they measure, no test judges."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import BENCHMARKS, Benchmark, Result, main, report, run
from bench.tables import spread, table

BENCH = Path(__file__).resolve().parents[3] / "bench"


def test_every_benchmark_is_run_with_the_others_and_documented() -> None:
    programs = {
        f"bench.{file.stem}"
        for file in BENCH.glob("*.py")
        if '__name__ == "__main__"' in file.read_text() and file.stem != "__main__"
    }
    assert programs
    assert {benchmark.module for benchmark in BENCHMARKS} == programs
    page = (BENCH / "README.md").read_text()
    assert [b.name for b in BENCHMARKS if f"`{b.name}`" not in page] == []
    assert [b.module for b in BENCHMARKS if f"python -m {b.module}" not in page] == []


def test_they_can_be_listed_without_being_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "queue"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("queue ")


def test_an_unknown_benchmark_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "speed"])
    assert "invalid choice: 'speed' (choose from 'apiserver'" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file" / "bench.md")]) == 2
    assert "bench.md: cannot be written: " in capsys.readouterr().err


def test_a_benchmark_that_fails_is_in_the_report_with_its_last_words() -> None:
    broken = Benchmark(name="broken", module="bench.no_such", measures="nothing", limits="none")
    result = run(broken, quick=True)
    assert result.code == 1
    text = report([result], facts=[("load average before", "1.00")])
    assert "- load average before: 1.00" in text
    assert "## broken" in text
    assert "**Failed** with exit code 1" in text
    assert "No module named bench.no_such" in text


def test_the_report_says_how_each_was_called() -> None:
    tight = next(benchmark for benchmark in BENCHMARKS if benchmark.name == "tight")
    command = tight.command(quick=True)
    text = report([Result(benchmark=tight, command=command, code=0, text="| a |", seconds=1.4)], facts=[])
    assert "`python -m bench.scheduling --tight --runs 1` (1 s)\n\n| a |\n" in text


def test_a_median_is_shown_with_its_range() -> None:
    assert spread([1, 1234.5, 20]) == "20 (1 to 1,234)"
    assert spread([0.12345]) == "0.123"
    assert table(("a", "b"), [("x", 1)]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
