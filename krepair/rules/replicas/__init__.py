"""Judges the replicas of one partition: pure functions over what their readings came to."""
