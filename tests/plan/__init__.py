"""Tests of krepair.plan."""
