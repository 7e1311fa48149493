"""A run: slices sent to the workers, their reports judged."""
