"""Mutants: small faults in the shipped code, to prove that the tests would detect each of them.

`make mutants` puts one at a time into a copy of the tree and expects the named tests to fail.
"""
