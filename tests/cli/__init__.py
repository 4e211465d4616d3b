"""Tests of krepair.cli."""
