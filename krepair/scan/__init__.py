"""The one reading of a log from which fixes and the forecast decide, and what follows from it."""
