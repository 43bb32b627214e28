"""`python -m embedded_kubernetes`."""

import sys

from embedded_kubernetes.command import main

sys.exit(main())
