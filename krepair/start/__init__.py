"""What the next start of a broker would do, by version, and what it needs."""
