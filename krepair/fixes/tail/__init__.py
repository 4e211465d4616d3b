"""Fix ``tail``: cut torn tails, and repair other damage by consent."""
