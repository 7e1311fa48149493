"""The options of the stages that run on the workers, of a job's settings."""

from __future__ import annotations

from pipelines.command.settings import Settings
from udfs.spark.protocol import StageOptions


def stage_options(settings: Settings, address: str, run_id: str, began_us: int) -> StageOptions:
    """address: of the lake to write to. began_us: when the run began, microseconds since 1970 UTC."""
    return StageOptions(
        run_id=run_id,
        began_us=began_us,
        window_bytes=settings.window_bytes,
        max_batch_uncompressed=settings.max_batch_uncompressed,
        quarantine_content_bytes=settings.quarantine_content_bytes,
        lake=address,
        parquet_compression=settings.parquet_compression,
        parquet_compression_level=settings.parquet_compression_level,
    )
