"""Syncs of krepair that nobody misses when they alone are left out, and why they stay."""

NOT_MISSED: dict[str, str] = {}
TOGETHER: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
