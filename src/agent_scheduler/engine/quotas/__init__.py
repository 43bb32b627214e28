"""Queues as sessions divide resources among them: amounts, the tree of queues, and the accounts of the plugins."""
