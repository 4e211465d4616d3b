"""Fix ``tail``: torn tails are cut, and other damage is repaired by consent."""
