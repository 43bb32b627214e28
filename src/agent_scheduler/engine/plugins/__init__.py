"""One file a rule. Names, order of reasons and formulas are kube-scheduler's; plugins do not know one another."""
