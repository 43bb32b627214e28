"""The commands of `agent-scheduler`."""
