"""The command line of `agent-scheduler completion`.

source <(agent-scheduler completion bash)
"""

from __future__ import annotations

import argparse

import shtab


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell that the script is for")


def main(args: argparse.Namespace) -> int:
    # The commands themselves are completed, and this one is one of them.
    from .main import whole_parser

    print(shtab.complete(whole_parser(), args.shell))
    return 0
