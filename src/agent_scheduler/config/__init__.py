"""The configuration of a scheduler: a file in the form of a KubeSchedulerConfiguration, and flags that override it.

An unusable configuration is rejected with one message that names the place, the value and what is allowed.
"""
