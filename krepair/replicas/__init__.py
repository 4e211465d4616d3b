"""Replicas of partitions held against each other: one reading per replica, and the join."""
