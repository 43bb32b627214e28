"""The division of nodes among schedulers: the rules that all follow, and the nodes that one of them may use now."""
