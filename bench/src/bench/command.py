"""The command `agent-scheduler bench`: measurements that need no checkout of the repository."""

from __future__ import annotations

import argparse

from .packing import command as packing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    # Plain parsers are enough: the main parser has done what is needed at the first parse.
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=argparse.ArgumentParser)
    help_text = "by a trace of a real cluster: how much is allocated, how long pods wait, how many gangs still fit"
    packing.add_arguments(commands.add_parser("packing", help=help_text, description=help_text))


def main(args: argparse.Namespace) -> int:
    return packing.main(args)
