"""Whole schedulers under load: a cluster, a workload, and measurements from a watch, the kernel and /metrics.

`model` defines a scenario, `catalogue` lists them all, `run` plays one, `judging` refuses what must not count. `python
-m bench.scenarios NAME` runs one on the embedded cluster, or with `--kubeconfig` on any other.
"""
