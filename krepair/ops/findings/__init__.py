"""Findings that no fix mends."""
