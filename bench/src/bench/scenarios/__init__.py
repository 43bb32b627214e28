"""Whole schedulers under load: a cluster, a workload, and what a watch, the kernel and /metrics say of it.

`model` says what a scenario is, `catalogue` names them all, `run` plays one, `judging` refuses what must not count.
`python -m bench.scenarios NAME` runs one on the embedded cluster, or with `--kubeconfig` on any other.
"""
