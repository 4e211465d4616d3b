"""Readers of records for the verbs that only show them: ``dump``, ``groups`` and ``transactions``."""
