"""Fix ``index``: the index files of a log directory are checked and repaired."""
