"""The interfaces of plugins: extension points, handle, arguments, registration."""
