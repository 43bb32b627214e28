"""Measures a scheduler under load: a cluster, a workload, and what the watch, the kernel, /metrics and the API report.

`model` describes a case, `run` plays one on a `site`, and `judging` refuses runs that must not count. The demo is one
case; `bench.scenarios` has the catalogue of the others.
"""
