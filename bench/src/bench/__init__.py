"""Benchmarks of the scheduler, and the demo: the distribution agent-scheduler-bench.

`harness` is the library: a cluster, a load, and what the watch, the kernel, /metrics and the API report. `packing`
measures how well policies fill a cluster (`agent-scheduler bench`), `demo` shows one case with a live view
(`agent-scheduler demo`), and `scenarios` puts a whole scheduler under load. The modules here each measure a single
part, or belong to `python -m bench`, which runs scenarios and parts and writes one report.
"""

#: Also of the distribution. All distributions of this repository have the same version.
__version__ = "0.1.0"
