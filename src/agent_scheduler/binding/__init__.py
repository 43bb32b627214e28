"""From a scheduling decision to a bound pod.

The conflict-aware binder, the writes before a bind, evictions, and the conditions and events of unschedulable pods.
"""
