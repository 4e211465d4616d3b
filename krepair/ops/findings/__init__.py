"""Findings that no fix mends, and those of the markers."""
