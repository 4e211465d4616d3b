"""Replicas of partitions compared with each other: one reading per replica, and the join."""
