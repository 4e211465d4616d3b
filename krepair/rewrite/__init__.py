"""Logs and their derived files written anew, and the proof of each."""
