"""Programs for developers: benchmarks, torture tests, generators. None of them is installed."""
