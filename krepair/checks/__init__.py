"""Table of everything that can be wrong with a log directory, and pure functions that check it."""
