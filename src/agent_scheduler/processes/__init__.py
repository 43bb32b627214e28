"""Several scheduler processes on one host: the supervisor, its children, and what they say to one another."""
