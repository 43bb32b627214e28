"""`python -m agent_scheduler`."""

import sys


def run() -> int:
    """Run the command line. Ctrl-C ends it without a traceback, also while the first modules load."""
    try:
        from agent_scheduler.cli.main import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
