"""Judges the replicas of one partition: pure functions over the result of their readings."""
