"""Reports how many bytes records take in each format and codec, and what storing them costs."""
