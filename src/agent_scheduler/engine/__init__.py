"""Decisions: synchronous and deterministic, without await, clock, randomness, log and environment.

Time and random numbers are arguments, and reports are return values, so that the same code runs in a worker, in a
simulation with virtual time, and in a unit test.
"""
