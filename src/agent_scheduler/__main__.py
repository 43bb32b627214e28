"""`python -m agent_scheduler`."""

import sys

from agent_scheduler.cli import main

sys.exit(main())
