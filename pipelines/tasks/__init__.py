"""Sends slices of segments to workers, reads their results, and checks whether these fit together."""
