"""Segments that are rewritten into one: what stays is copied, indexed, and verified by other code."""
