"""The batch scheduler: groups of pods, from queues, in sessions."""
