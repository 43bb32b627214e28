"""A scheduler's part in sharing nodes: the coordinator that follows the shards, and the leases that tell who lives."""
