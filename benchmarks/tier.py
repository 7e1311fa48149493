"""Reading tiered storage: the same segments as objects of a tier in a local folder and as files of a disk;
and chunks of 4 MiB in zstd, AES-256-GCM or both, compared with the libraries alone over the same bytes.

The peer of a row reads the object chunk by chunk with ``zstandard`` and ``cryptography``. Both hand the plain
bytes over in windows, as a decoder takes them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from benchmarks.harness import Row, Scale, paired, part_main, per_second
from benchmarks.segments import MIB, PLAIN, WORK, batches, partition_dir, segment
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.tier_keys import use_tier_keys

_CHUNK, _WINDOW = 4 * MIB, 2 * MIB
_GOAL = 0.9  # of the files, and of the libraries
_ABSENT = "no record holds this text"
_FOLDER = WORK / "tier"
_ID = "A" * 22
_STEM = f"{0:020d}-{_ID}"
_AAD = bytes(range(32))


@cache
def _key() -> Any:
    """Returns the private key that decrypts the data keys; it lies in a file, too."""
    from Crypto.PublicKey import RSA

    key = RSA.generate(2048)
    (_FOLDER / "key.pem").write_bytes(key.export_key())
    use_tier_keys({"bench": str(_FOLDER / "key.pem")})
    return key


def _object(data: bytes, is_compressed: bool, is_encrypted: bool) -> Path:
    """Writes an object and its manifest as the plugin does; returns the ``.log`` object."""
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    folder = _FOLDER / f"chunks-{is_compressed:d}{is_encrypted:d}" / f"bench-{_ID}" / "0"
    folder.mkdir(parents=True)
    sizes, data_key = [], os.urandom(32)
    with (folder / f"{_STEM}.log").open("wb") as file:
        for at in range(0, len(data), _CHUNK):
            chunk = data[at : at + _CHUNK]
            if is_compressed:
                chunk = zstandard.ZstdCompressor().compress(chunk)
            if is_encrypted:
                iv = os.urandom(12)
                chunk = iv + AESGCM(data_key).encrypt(iv, chunk, _AAD)
            sizes.append(file.write(chunk))
    packed = struct.pack(">iib", len(sizes), 0, 4) + b"".join(struct.pack(">i", size) for size in sizes)
    index = base64.b64encode(zstandard.ZstdCompressor().compress(packed)).decode()
    manifest: dict[str, Any] = {
        "version": "1",
        "chunkIndex": {
            "type": "variable",
            "originalChunkSize": _CHUNK,
            "originalFileSize": len(data),
            "transformedChunks": index,
        },
        "segmentIndexes": {},
        "compression": is_compressed,
        "remoteLogSegmentMetadata": {},
    }
    if is_encrypted:
        sealed = PKCS1_OAEP.new(_key(), hashAlgo=SHA3_512).encrypt(data_key)
        data_key_text = f"bench:{base64.b64encode(sealed).decode()}"
        manifest["encryption"] = {"dataKey": data_key_text, "aad": base64.b64encode(_AAD).decode()}
    (folder / f"{_STEM}.rsm-manifest").write_text(json.dumps(manifest))
    (folder / "sizes.json").write_text(json.dumps(sizes))
    return folder / f"{_STEM}.log"


def _ours(path: Path, buffer: np.ndarray) -> float:
    """Seconds that it takes to read the segment in windows of a decoder."""
    began, at = time.perf_counter(), 0
    source = open_source(str(path.with_suffix(".rsm-manifest")))
    while got := source.read_into(at, buffer):
        at += got
    assert not source.unreadable(0, at)
    source.close()
    return time.perf_counter() - began


def _libraries(path: Path, buffer: np.ndarray, is_compressed: bool, is_encrypted: bool) -> float:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    began = time.perf_counter()
    manifest = json.loads(path.with_suffix(".rsm-manifest").read_text())
    if is_encrypted:
        sealed = base64.b64decode(manifest["encryption"]["dataKey"].partition(":")[2])
        cipher = AESGCM(PKCS1_OAEP.new(_key(), hashAlgo=SHA3_512).decrypt(sealed))
    with path.open("rb") as file:
        for size in json.loads(path.with_name("sizes.json").read_text()):
            chunk = file.read(size)
            if is_encrypted:
                chunk = cipher.decrypt(chunk[:12], chunk[12:], _AAD)
            if is_compressed:
                chunk = zstandard.ZstdDecompressor().decompress(chunk)
            for at in range(0, len(chunk), len(buffer)):
                part = np.frombuffer(chunk, np.uint8)[at : at + len(buffer)]
                buffer[: len(part)] = part
    return time.perf_counter() - began


def _chunks(scale: Scale) -> Iterator[Row]:
    data = segment(PLAIN, scale.kernel_bytes).read_bytes()
    buffer = np.empty(_WINDOW, dtype=np.uint8)
    for name, *how in (
        ("zstd", True, False),
        ("AES-256-GCM", False, True),
        ("zstd and AES-256-GCM", True, True),
    ):
        path = _object(data, *how)
        runs: dict[str, Callable[[], float]] = {
            "ours": partial(_ours, path, buffer),
            "library": partial(_libraries, path, buffer, *how),
        }
        pairs = paired(2 * scale.rounds, runs)
        yield Row(
            f"chunks of 4 MiB, {name}",
            "MB/s",
            pairs.spread("ours", per_second(len(data))),
            "zstandard, cryptography",
            pairs.spread("library", per_second(len(data))),
            pairs.ratio("library", "ours"),
            _GOAL,
            note="speed of the libraries over the same chunks",
        )


def _find(*arguments: str) -> float:
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "pipelines.find",
        *arguments,
        "--value-contains",
        _ABSENT,
        "--cores",
        "1",
    ]
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdout=quiet, stderr=quiet, check=False)
    return time.perf_counter() - began


def _files(scale: Scale) -> Iterator[Row]:
    """The segments of a log as objects of the plugin, neither compressed nor encrypted: hard links."""
    disk = partition_dir("tier", PLAIN, 1, scale.job_bytes // 4, 4)
    tier, empty = _FOLDER / "plain", _FOLDER / "empty"
    folder = tier / f"tier-{_ID}" / "0"
    folder.mkdir(parents=True)
    empty.mkdir()
    paths = sorted((disk / "tier-0").glob("*.log"))
    for number, path in enumerate(paths):
        name = f"{path.stem}-{number:022d}"
        os.link(path, folder / f"{name}.log")
        length, last = path.stat().st_size, batches(path.read_bytes())[-1][2]
        index: dict[str, Any] = {
            "originalChunkSize": _CHUNK,
            "originalFileSize": length,
            "transformedChunkSize": _CHUNK,
        }
        index |= {"type": "fixed", "finalTransformedChunkSize": (length - 1) % _CHUNK + 1}
        of = {"startOffset": int(path.stem), "endOffset": last, "segmentLeaderEpochs": {"0": int(path.stem)}}
        manifest = {"version": "1", "chunkIndex": index, "segmentIndexes": {}, "compression": False}
        (folder / f"{name}.rsm-manifest").write_text(json.dumps(manifest | {"remoteLogSegmentMetadata": of}))
    size = sum(path.stat().st_size for path in paths)
    runs = {"ours": partial(_find, str(empty), "--tier", str(tier)), "disk": partial(_find, str(disk))}
    for run in runs.values():
        run()  # compiles kernels where they are new
    pairs = paired(scale.rounds, runs)
    yield Row(
        "find in a local tier",
        "MB/s",
        pairs.spread("ours", per_second(size)),
        "the same files on the disk",
        pairs.spread("disk", per_second(size)),
        pairs.ratio("disk", "ours"),
        _GOAL,
        note="processes, one core each",
    )


def measure(scale: Scale) -> list[Row]:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    try:
        return [*_chunks(scale), *_files(scale)]
    finally:
        shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    part_main("tier", measure)
