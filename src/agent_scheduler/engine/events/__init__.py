"""Cluster events, and the pods that they can help according to plugins: QueueingHints and PreQueueingHints."""
