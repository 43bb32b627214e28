"""The configuration of a scheduler: a file in the shape of a KubeSchedulerConfiguration, and flags that override it.

What cannot be used is refused with one message that says where it stands, what was found and what is allowed.
"""
