"""`python -m agent_scheduler`."""

import sys

from agent_scheduler.cli.main import main

sys.exit(main())
