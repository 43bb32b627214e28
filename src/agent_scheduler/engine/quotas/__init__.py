"""Queues and their amounts of resources: vectors, the tree of queues, the plugins' accounts, and the book."""
