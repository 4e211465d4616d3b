"""Judgement of the replicas of one partition: pure functions over what was read of them."""
