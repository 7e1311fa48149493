"""Refuses tables with features of Delta that deltalake writes wrongly, or refuses in its own words."""

from __future__ import annotations

from deltalake import DeltaTable

from pipelines.command.errors import UserError

# Feature in the protocol -> the property that turned it on, and what goes wrong
_FEATURES = {
    "columnMapping": ("delta.columnMapping.mode", "rows would be written under wrong names"),
    "rowTracking": ("delta.enableRowTracking", "it can't be written"),
    "inCommitTimestamp": ("delta.enableInCommitTimestamps", "it can't be written"),
    "typeWidening": ("delta.enableTypeWidening", "it can't be written"),
    "clustering": ("CLUSTER BY", "it can't be written"),
    "identityColumns": ("GENERATED AS IDENTITY", "it can't be written"),
    "catalogManaged": ("delta.feature.catalogManaged", "it can't be written"),
}
_OFF = ("none", "false")


def check_features(table: DeltaTable, path: str) -> None:
    """Raises a UserError for a table that deltalake can't write as it should."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    named = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for feature, (turned_on_by, problem) in _FEATURES.items():
        # Old protocols name no features: the property says that a table uses one
        if feature in named or configuration.get(turned_on_by, "none").lower() not in _OFF:
            raise UserError(
                f"{path} has Delta's feature {feature} ({turned_on_by}), with which {problem}: "
                f"ALTER TABLE delta.`{path}` DROP FEATURE {feature}, or decode into a new lake"
            )
