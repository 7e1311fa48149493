"""Where a segment's bytes come from."""
