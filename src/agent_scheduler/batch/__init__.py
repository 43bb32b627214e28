"""The batch scheduler: schedules groups of pods from queues, in sessions."""
