"""The fast path: workers that decide on snapshots, a binder that settles their races, and what joins them."""
