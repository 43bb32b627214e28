"""What is installed, by lock: for the image, for what builds it, for development; and what is said and asked of it."""
