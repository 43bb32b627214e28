"""Measures a scheduler under load: a cluster, a workload, and data from the watch, the kernel, /metrics and the API.

`model` describes a case, `run` plays one on a `site`, and `judging` refuses runs that must not count. The demo is one
case; `bench.scenarios` has the list of the others.
"""
