"""Java's archive of the classes that Spark loads: with it the JVM of an embedded session starts sooner.

``make setup`` makes the archive, beside pyspark's jars (``tools.class_archive``). Without one Spark starts as
ever.

Java uses an archive only with the Java and over the class path that made it, but crashes where the file was
cut short. So the name of an archive holds its size, and a hash of all that has to be as it was.

Java archives nothing where the class path has a folder with files in it, and Spark's begins with its
configuration folder. So the JVM gets an empty one, and log4j's file by name. No settings of a user may be
lost by this: where SPARK_CONF_DIR is set, or ``pyspark/conf`` is not as ``make setup`` left it, no archive is
used.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pipelines.command.java import java_build

LOG_CONF = "log4j2.properties"
# The files of pyspark/conf that are ours; what spark-env.sh sets the embedded session sets itself
_OUR_CONF = {"spark-env.sh", LOG_CONF}
_CONF_DIR = "SPARK_CONF_DIR"


def archive_folder(home: Path) -> Path:
    """The folder of a Spark's archives. home: its SPARK_HOME, resolved."""
    return home / "class-archive"


def archive_key(home: Path, java: str) -> str | None:
    """What an archive's name begins with: a hash of this Java, of the jars, and of the configuration.

    None if ``pyspark/conf`` holds other files than ours. java: path of the command. Raises OSError if a file
    cannot be looked at.
    """
    conf = sorted((home / "conf").iterdir())
    if {file.name for file in conf} != _OUR_CONF:
        return None
    parts = [java_build(java), str(home), *(f"{file.name} {file.read_text()}" for file in conf)]
    for file in sorted((home / "jars").glob("*.jar")):
        found = file.stat()
        parts.append(f"{file.name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def archive_name(key: str, size: int) -> str:
    """size: of the file, in bytes."""
    return f"{key}-{size}.jsa"


def whole_archive(home: Path, key: str) -> Path | None:
    """The archive of a key; None where there is none, or one that was cut short. May raise OSError."""
    found = archive_folder(home).glob(f"{key}-*.jsa")
    return next((file for file in found if file.name == archive_name(key, file.stat().st_size)), None)


def find_archive(home: Path, java: str) -> Path | None:
    """The archive that a session may use, None if there is none."""
    if _CONF_DIR in os.environ:
        return None
    try:
        key = archive_key(home, java)
        return None if key is None else whole_archive(home, key)
    except OSError:
        return None


def java_options(home: Path, option: str) -> str:
    """Options of a JVM that makes or uses an archive, for spark.driver.defaultJavaOptions.

    option: -XX:ArchiveClassesAtExit=... or -XX:SharedArchiveFile=... Java logs nothing of the archive: it
    starts without one that it refuses.
    """
    log_conf = (home / "conf" / LOG_CONF).as_uri()
    options = (option, f"-Dlog4j2.configurationFile={log_conf}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return " ".join(map(_quoted, options))


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def launch_environment(home: Path) -> dict[str, str]:
    """Environment variables with which a JVM that makes or uses an archive is started."""
    return {_CONF_DIR: str(archive_folder(home) / "conf")}
