"""The options of a run, independent of the scenario: where it runs, how often, and what is left out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

#: The value of `--make-nodes` without a number: as many as the case needs.
AS_THE_CASE_WANTS = 0
QUICK_SCALE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options. `kubeconfig` None is the embedded cluster, started for each run."""

    runs: int = 5
    scale: float = 1.0
    quick: bool = False
    #: The scheduler's events on and off, with a run of each case for each; None as the case defines.
    events: tuple[bool, ...] | None = None
    #: Seconds after which no further run begins.
    limit: float | None = None
    #: Seconds after which a run is given up, instead of the case's own.
    patience: float | None = None
    #: Only cases whose name contains this.
    case: str = ""
    #: Whether the rate of binds alone is measured, too.
    bare: bool = True
    #: Whether the embedded cluster resembles a real control plane, see `harness.real_plane`.
    like_real: bool = False
    traces: tuple[str, ...] = ()
    scheduler_name: str = "agent-scheduler"
    kubeconfig: Path | None = None
    make_nodes: int | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    metrics_url: str = ""
    metrics_token: str = ""
    metrics_insecure: bool = False
    scheduler_pids: tuple[int, ...] = ()
    server_pids: tuple[int, ...] = ()

    @property
    def factor(self) -> float:
        return self.scale * (QUICK_SCALE if self.quick else 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `options_of` reads."""
    parser.add_argument("--runs", type=_at_least_1, metavar="N", help="runs of each case (default: 5)")
    parser.add_argument(
        "--quick", action="store_true", help="few nodes and pods, one run each: shows whether it works, not how fast"
    )
    parser.add_argument(
        "--scale", type=_positive, default=1.0, metavar="X", help="X times the nodes and pods (default: 1)"
    )
    parser.add_argument(
        "--events", nargs="+", choices=["on", "off"],
        help="run every case with the scheduler's events on or off (default: by the case, mostly on)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=_positive, metavar="SECONDS",
        help="seconds of each scenario after which no further run begins",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=_positive, metavar="SECONDS",
        help="seconds after which a run is given up and refused (default: by the case, mostly 600)",
    )  # fmt: skip
    parser.add_argument("--case", default="", metavar="TEXT", help="only the cases whose name contains this")
    parser.add_argument("--no-bare", action="store_true", help="do not measure the rate of binds alone")
    parser.add_argument(
        "--like-real", action="store_true",
        help="TLS, RBAC with the scheduler's role, leader election, and writes that take as long as those of a real "
        "API server",
    )  # fmt: skip
    parser.add_argument(
        "--trace", nargs="+", default=[], metavar="KIND:FILES[@SPEEDUP]",
        help="traces for the scenario `trace`, in the forms that the demo reads, SPEEDUP times as fast",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler-name", default="agent-scheduler", metavar="NAME",
        help="spec.schedulerName of the pods: which scheduler is measured (default: %(default)s)",
    )  # fmt: skip
    other = parser.add_argument_group("another cluster")
    other.add_argument(
        "--kubeconfig", type=Path, metavar="FILE",
        help="run on this cluster, with its scheduler, and start none",
    )  # fmt: skip
    other.add_argument(
        "--make-nodes", type=_count, nargs="?", const=AS_THE_CASE_WANTS, metavar="N",
        help="create N nodes without kubelets, or without N as many as the case needs; they are removed at the end "
        "(default: use the existing nodes)",
    )  # fmt: skip
    other.add_argument(
        "--node-selector", nargs="+", type=_label, default=[], metavar="LABEL=VALUE",
        help="use only nodes with these labels",
    )  # fmt: skip
    other.add_argument("--metrics-url", default="", metavar="URL", help="the scheduler's /metrics")
    other.add_argument("--metrics-token-file", type=Path, metavar="FILE", help="a bearer token for --metrics-url")
    other.add_argument("--metrics-insecure", action="store_true", help="do not verify the certificate of --metrics-url")
    other.add_argument(
        "--scheduler-pid", nargs="+", type=_at_least_1, default=[], metavar="PID",
        help="the scheduler's processes on this machine, for CPU and memory (default: from /metrics)",
    )  # fmt: skip
    other.add_argument(
        "--server-pid", nargs="+", type=_at_least_1, default=[], metavar="PID",
        help="processes of the API server and its store on this machine, for CPU",
    )  # fmt: skip


def options_of(args: argparse.Namespace) -> Options:
    """Return the options. Raises ValueError for flags that contradict one another, or a file that cannot be read."""
    if args.kubeconfig is None:
        given = {
            "--make-nodes": args.make_nodes is not None,
            "--node-selector": args.node_selector,
            "--metrics-url": args.metrics_url,
            "--scheduler-pid": args.scheduler_pid,
            "--server-pid": args.server_pid,
        }
        for flag, value in given.items():
            if value:
                raise ValueError(f"{flag} is for another cluster: give its --kubeconfig, too")
    elif args.like_real:
        raise ValueError("--like-real is for the embedded cluster; with --kubeconfig none is started")
    elif args.events:
        raise ValueError("--events sets up a scheduler that is started here; with --kubeconfig none is")
    if args.make_nodes is not None and args.node_selector:
        raise ValueError("--make-nodes and --node-selector: nodes are made, or chosen")
    token = ""
    if args.metrics_token_file is not None:
        try:
            token = args.metrics_token_file.read_text().strip()
        except OSError as error:
            raise ValueError(f"--metrics-token-file {args.metrics_token_file}: {error.strerror}") from None
    return Options(
        runs=args.runs or (1 if args.quick else 5),
        scale=args.scale,
        quick=args.quick,
        events=tuple(dict.fromkeys(each == "on" for each in args.events)) if args.events else None,
        limit=args.limit,
        patience=args.patience,
        case=args.case,
        bare=not args.no_bare,
        like_real=args.like_real,
        traces=tuple(args.trace),
        scheduler_name=args.scheduler_name,
        kubeconfig=args.kubeconfig,
        make_nodes=args.make_nodes,
        node_selector=tuple(args.node_selector),
        metrics_url=args.metrics_url,
        metrics_token=token,
        metrics_insecure=args.metrics_insecure,
        scheduler_pids=tuple(args.scheduler_pid),
        server_pids=tuple(args.server_pid),
    )


def _at_least_1(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


_count = _at_least_1


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected LABEL=VALUE, not {text!r}")
    return key, value
