"""Tests of krepair.checks."""
