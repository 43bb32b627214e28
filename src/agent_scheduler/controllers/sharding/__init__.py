"""The sharding controller: divides the nodes among schedulers by `engine.shards` and writes NodeShards."""
