"""Decisions that a real kube-scheduler made, replayed: by a plain reading of its rules, and by ours."""
