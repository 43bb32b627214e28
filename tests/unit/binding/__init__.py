"""Tests of `agent_scheduler.binding`."""
