"""Pre-recovery: what it leaves, what it leaves alone, and what a start makes of it."""
