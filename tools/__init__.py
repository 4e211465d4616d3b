"""Programs of the project's own workshop; nothing of them is installed."""
