"""The account of queues: their usage by all pods, the pods and groups that wait for room, and promises to groups."""
