"""Tests of `agent_scheduler.batch`."""
