"""``dist/krepair``: krepair with its own interpreter and libc, as one file that needs nothing of the host."""
