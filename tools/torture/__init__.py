"""Long tests with thousands of crashes, failing calls, power cuts and damaged plans: see ``docs/crash-safety.md``."""
