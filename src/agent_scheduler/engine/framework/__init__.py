"""What a plugin is given and what it implements: points, handle, arguments, registration."""
