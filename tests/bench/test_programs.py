"""The benchmarks are all there, and their report says when one did not run. What they measure, no test judges."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

import pytest

from bench.__main__ import chosen, command_of, known, main, parser, passed_on
from bench.harness.result import Run, write_runs
from bench.parts import Part, read_parts, run_part, write_part
from bench.programs import BENCHMARKS
from bench.scenarios.catalogue import names
from tests.support.places import BENCH


def test_every_benchmark_is_run_with_the_others_and_documented() -> None:
    programs = {
        f"bench.{file.stem}"
        for file in (BENCH / "src" / "bench").glob("*.py")
        if '__name__ == "__main__"' in file.read_text() and file.stem != "__main__"
    }
    assert programs
    assert {benchmark.module for benchmark in BENCHMARKS} == programs
    assert {*names()}.isdisjoint(each.name for each in BENCHMARKS)
    page = (BENCH / "README.md").read_text()
    assert [name for name in (*names(), *(b.name for b in BENCHMARKS)) if f"`{name}`" not in page] == []
    assert [b.module for b in BENCHMARKS if f"python -m {b.module}" not in page] == []


def test_they_can_be_listed_without_being_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    told = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert told == {*names(), *(each.name for each in BENCHMARKS)}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--make-nodes", "5"], "--make-nodes is for another cluster"),
        (["--kubeconfig", "f", "--events", "on"], "--events sets up a scheduler that is started here"),
        (["--kubeconfig", "f", "--like-real"], "--like-real is for the embedded cluster"),
        (["--kubeconfig", "f", "--only", "queue"], "single parts do not run on another cluster"),
        (["--kubeconfig", "f", "--make-nodes", "--node-selector", "a=b"], "nodes are made, or chosen"),
        (["--only", "trace"], "needs --trace"),
        (["--runs", "0"], "must be at least 1, not 0"),
        (["--scale", "0"], "must be more than 0, not 0"),
        (["--kubeconfig", "f", "--node-selector", "a"], "expected LABEL=VALUE, not 'a'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file" / "bench")]) == 2
    assert "bench: cannot be written: " in capsys.readouterr().err


def test_a_group_stands_for_its_members_in_their_order() -> None:
    args = parser().parse_args(["--only", "agents", "--only", "tight", "--only", "basic"])
    assert chosen(args) == ["basic", "waves", "churn", "tight"]
    assert set(known()["parts"]) == {each.name for each in BENCHMARKS}


def test_everything_is_run_but_a_trace_that_is_not_there() -> None:
    every = chosen(parser().parse_args([]))
    assert every == [name for name in names() if name != "trace"] + [each.name for each in BENCHMARKS]
    assert "trace" in chosen(parser().parse_args(["--trace", "azure-llm:f"]))
    assert chosen(parser().parse_args(["--kubeconfig", "f"]))[-1] == "reclaim"


def test_scenarios_are_given_their_own_arguments_and_programs_theirs() -> None:
    argv = shlex.split("--only basic --out=x --runs 3 --events on off --only tight --quick")
    given = passed_on(argv)
    assert given == ["--runs", "3", "--events", "on", "off", "--quick"]
    args = parser().parse_args(argv)
    assert command_of("basic", args, given) == ["python", "-m", "bench.scenarios", "basic", *given]
    assert command_of("queue", args, given) == ["python", "-m", "bench.queue_moves", "--runs", "1"]


def test_what_fails_is_kept_with_its_last_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = run_part("broken", ["python", "-m", "bench.no_such"], folder=tmp_path)
    assert read_parts(tmp_path)["broken"].text == part.text
    assert not part.ok
    assert part.code == 1
    assert "No module named bench.no_such" in part.text
    # The user sees it at once.
    assert "No module named bench.no_such" in capsys.readouterr().err


class StoppedError(BaseException):
    pass


def test_runs_that_were_over_are_kept_when_it_is_interrupted(tmp_path: Path) -> None:
    write_runs(tmp_path / "made", [Run(scenario="s", case="c", number=1)])
    # The program keeps a run, reports it, and then waits to be ended.
    told = (
        "import shutil, sys, time; "
        f"shutil.copy({str(tmp_path / 'made')!r}, sys.argv[-1]); "
        "print('kept', file=sys.stderr, flush=True); time.sleep(60)"
    )

    class Said(io.StringIO):
        def write(self, text: str) -> int:
            raise StoppedError

    with pytest.raises(StoppedError), contextlib.redirect_stderr(Said()):
        run_part("s", ["python", "-c", told], folder=tmp_path / "parts", scenario=True)
    part = read_parts(tmp_path / "parts")["s"]
    assert (part.code, part.text) == (130, "interrupted")
    assert [run.case for run in part.runs] == ["c"]


def test_a_trace_is_kept_by_its_files_names_alone(tmp_path: Path) -> None:
    rest = ["--metrics-url", "http://h:1/metrics"]
    command = ["python", "-c", "", "--trace", "openb:/a/n.csv,b/p.csv@10", *rest]
    part = run_part("p", command, folder=tmp_path)
    assert part.command[3:] == ["--trace", "openb:n.csv,p.csv@10", *rest]
    assert part.million_additions_ms > 0


def test_parts_that_were_run_apart_are_found_together(tmp_path: Path) -> None:
    parts = [Part(name="b", command=["python"], text="| b |"), Part(name="a", command=["python"], code=1)]
    for part in parts:
        write_part(tmp_path / "parts", part)
    write_part(tmp_path / "parts", Part(name="a", command=["python"], text="again"))
    found = read_parts(tmp_path / "parts")
    assert {name: part.text for name, part in found.items()} == {"a": "again", "b": "| b |"}
