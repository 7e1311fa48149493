"""Lists what lies in the sources: the segments of each log, and what the files next to them say of it."""
