"""What a session's rules are made of; a file each."""
