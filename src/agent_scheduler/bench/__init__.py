"""Measures a scheduler under load: a cluster, a workload, and what watch, kernel, /metrics and API say.

`model` says what a case is, `run` plays one on a `site` and `judging` refuses what must not count. The demo is one
case of it, the repository's `bench/` has the catalogue of the others.
"""
