"""Crashes, failing calls, power cuts and damaged plans by the ten thousand: see ``docs/crash-safety.md``."""
