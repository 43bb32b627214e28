"""What Jobs ask plugins for: the hosts of all, known to each pod, and what these need. As Volcano has them. Pure."""
