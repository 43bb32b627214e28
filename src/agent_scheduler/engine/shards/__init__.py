"""Which scheduler uses which nodes: the rules that all agree on, and what one of them may use now."""
