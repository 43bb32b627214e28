"""Cluster events, and what plugins say of whom they can help: QueueingHints and PreQueueingHints."""
