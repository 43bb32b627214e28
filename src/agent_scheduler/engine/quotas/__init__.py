"""Queues and how much of each resource they hold: vectors, the tree, what plugins compute by it, and the one book."""
