"""The views over a lake's tables."""
