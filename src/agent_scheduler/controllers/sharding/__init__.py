"""The sharding controller: divides the nodes among schedulers, as `engine.shards` plans it, and writes NodeShards."""
