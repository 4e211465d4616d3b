"""Reading of a log directory without changing it: its files as values, its settings, its locks, its free space."""
