"""Segments that are written anew as one: what stays is copied, finished, and verified by other code."""
