"""The plugins, one file per rule, independent of one another.

Names, order of reasons and formulas are kube-scheduler's.
"""
