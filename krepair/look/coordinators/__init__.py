"""Readers of the coordinator topics for ``krepair groups`` and ``krepair transactions``."""
