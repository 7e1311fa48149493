"""Holds what tests share: a reference decoder, a maker of segments, the bundled corpus, Kafka as judge."""
