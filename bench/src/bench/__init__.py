"""Benchmarks of the scheduler, and the demo: the distribution agent-scheduler-bench.

`harness` is the library: a cluster, a load, and measurements from the watch, the kernel, /metrics and the API.
`packing` measures how well policies fill a cluster (`agent-scheduler bench`), `demo` runs one case with a live view
(`agent-scheduler demo`), and `scenarios` puts a whole scheduler under load. Each other module measures a single part,
or belongs to `python -m bench`, which runs scenarios and parts and writes one report.
"""

import logging

#: The version of the distribution. All distributions of this repository have the same version.
__version__ = "0.1.0"

# matplotlib logs what it thinks of a user's fonts, caches and configuration, which the plots here do not use.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
