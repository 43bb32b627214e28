"""Measures how well policies fill a cluster: pods of a trace and the scheduler's own decisions, without a cluster.

`policies` names the scores, `decisions` places pods one after another, and there are three questions: how much is
allocated when more is requested than exists (`demand`), how long pods wait that come and go (`lives`), and how many
gangs still fit beside small pods (`gangs`). `through_http` measures the first one with a whole scheduler.
"""
