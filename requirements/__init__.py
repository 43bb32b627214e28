"""The locks of what is installed for the image, its build and development, and programs that check and list them."""
