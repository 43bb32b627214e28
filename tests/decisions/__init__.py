"""Replays of decisions of a real kube-scheduler: by a plain implementation of its rules, and by the engine."""
