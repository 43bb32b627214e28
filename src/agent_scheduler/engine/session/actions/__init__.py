"""What a session does, one action after another; a file each."""
