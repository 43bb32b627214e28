"""The command line of `agent-scheduler completion`.

source <(agent-scheduler completion bash)
"""

from __future__ import annotations

import argparse

import shtab

from .outputs import write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell that runs the script")


def main(args: argparse.Namespace) -> int:
    # Imported here because main imports the modules of all commands, this one included.
    from .main import whole_parser

    write(shtab.complete(whole_parser(), args.shell) + "\n")
    return 0
