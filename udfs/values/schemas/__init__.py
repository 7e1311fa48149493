"""The schema registry, how payloads name their schema, and what all decoders of payloads share."""
