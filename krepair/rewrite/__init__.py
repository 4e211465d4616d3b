"""Rewritten logs and their derived files, and the proof of each."""
