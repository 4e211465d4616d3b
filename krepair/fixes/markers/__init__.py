"""Fix ``markers``: transaction markers and emptied batches that nobody needs go."""
