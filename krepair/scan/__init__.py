"""The single reading of a log on which fixes and the forecast base their decisions, and what follows from it."""
