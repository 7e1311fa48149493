"""Copies of one partition compared: which history is the true one, and which batch of which copy has it."""
