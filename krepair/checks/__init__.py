"""What can be wrong with a log directory: the table of rules, and pure functions that check."""
