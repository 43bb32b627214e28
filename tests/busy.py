"""`python -m tests.busy [--processes N] -- COMMAND`: run a command beside N busy processes, as on a slow machine.

Each process computes without a pause until the command has ended, or until this process is gone. The exit code is the
command's. What fails here and passes alone depends on how fast the machine is, which no test of this project may.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys


def compute(parent: int) -> None:
    """Keep one core busy while the process `parent` lives.

    In a session of its own: Linux shares the cores out by session first, so that all of one session would disturb no
    more than a single process.
    """
    os.setsid()
    while os.getppid() == parent:
        sum(number * number for number in range(100_000))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.busy", description=__doc__)
    parser.add_argument("--processes", type=int, default=4, metavar="N", help="busy processes (4)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command and its arguments, after --")
    options = parser.parse_args()
    busy = [multiprocessing.Process(target=compute, args=(os.getpid(),), daemon=True) for _ in range(options.processes)]
    for process in busy:
        process.start()
    try:
        return subprocess.run(options.command, check=False).returncode
    except KeyboardInterrupt:
        return 130
    finally:
        for process in busy:
            process.terminate()
            process.join()


if __name__ == "__main__":
    sys.exit(main())
