"""Fix ``markers``: removal of transaction markers and retained empty batches that no reader needs (KAFKA-8335)."""
