"""The plan: its values, its file, its review and its views."""
