"""A scheduler's part in sharing nodes: the coordinator for its shard, and the leases of other schedulers."""
