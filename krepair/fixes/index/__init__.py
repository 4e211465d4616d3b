"""Fix ``index``: check and repair of the index files of a log directory."""
