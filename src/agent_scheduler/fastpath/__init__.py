"""The fast path: workers that decide on snapshots, a binder that resolves their races, and the parts between them."""
