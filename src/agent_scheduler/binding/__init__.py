"""From a decision to a pod that is bound: the conflict-aware binder, what is written before a bind, evictions, and
what is told of a pod that fits nowhere."""
