"""The command line of `agent-scheduler webhook`."""

from __future__ import annotations

import argparse

from agent_scheduler.process.webhook import WebhookProcess
from agent_scheduler.process.webhook_flags import add_arguments, settings_of

from .processes import run_process

__all__ = ["add_arguments", "main"]


def main(args: argparse.Namespace) -> int:
    return run_process("webhook", lambda: settings_of(args), lambda settings: WebhookProcess(settings).run())
