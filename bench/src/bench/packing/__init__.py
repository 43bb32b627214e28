"""How well policies fill a cluster: pods of a trace through the scheduler's own decisions, with no cluster around them.

`policies` names the scores, `decisions` places pods one after another, and there are three questions: how much is
allocated when more is asked for than there is (`demand`), how pods fare that come and go (`lives`), and how many gangs
still fit where small pods came first (`gangs`). `through_http` asks the first one of a whole scheduler.
"""
