"""`agent-scheduler shards`: which nodes are whose, as the cluster has it, and what a configuration would make of it."""
