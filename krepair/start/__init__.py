"""Forecast of a broker's next start, by version, and of its needs."""
