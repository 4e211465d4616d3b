"""Fix ``markers``: removal of transaction markers and empty batches that no reader needs any more (KAFKA-8335)."""
