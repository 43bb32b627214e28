"""`agent-scheduler explain`: asks a running scheduler about one pod, and shows the answer to people."""
