"""Jobs killed at random moments and run again: ``make soak``, and the means for tests that kill."""
