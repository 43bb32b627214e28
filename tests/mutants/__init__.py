"""Mutants: small faults seeded by hand into the shipped code, to prove that the tests would notice each of them.

`make mutants` puts one at a time into a copy of the tree and expects the tests that it names to fail.
"""
