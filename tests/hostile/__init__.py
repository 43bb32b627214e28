"""Objects that a Kubernetes API server accepts and no user means well by, for each kind that is read.

python -m tests.hostile    the longest step by kind that they cause, in calls and in milliseconds
"""
