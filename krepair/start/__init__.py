"""The forecast of a broker's next start: what it does to each partition, what may end it, and what it needs."""
