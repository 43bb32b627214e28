"""`agent-scheduler controllers`: a process of its own for controllers, with leader election, health and metrics."""
