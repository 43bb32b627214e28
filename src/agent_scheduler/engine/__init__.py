"""Decisions: synchronous and deterministic. No await, clock, chance, log or environment in here.

Whatever time it is, whatever is random and whatever has to be told comes in as an argument and goes out as a
value, so that the same code runs in a worker, in a simulation with virtual time, and in a unit test.
"""
