"""The actions of sessions, one file each."""
