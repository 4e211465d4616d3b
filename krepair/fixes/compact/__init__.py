"""Fix ``compact``: the last record of each key stays."""
