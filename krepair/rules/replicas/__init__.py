"""Judgement of the replicas of one partition for ``compare``, by what ``krepair.replicas`` has read of them."""
