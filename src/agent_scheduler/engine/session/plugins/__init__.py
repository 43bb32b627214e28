"""The plugins of sessions, one file each."""
