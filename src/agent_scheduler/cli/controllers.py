"""The command line of `agent-scheduler controllers`."""

from __future__ import annotations

import argparse

from agent_scheduler.process.controller_flags import add_arguments, settings_of
from agent_scheduler.process.controllers import ControllersProcess

from .processes import run_process

__all__ = ["add_arguments", "main"]


def main(args: argparse.Namespace) -> int:
    return run_process("controllers", lambda: settings_of(args), lambda settings: ControllersProcess(settings).run())
