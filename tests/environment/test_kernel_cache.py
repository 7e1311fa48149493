"""Where compiled kernels are kept: whoever can write there runs code as us.

And stale machine code must be impossible: the folder's name is made of the bytes of every module that holds
a kernel, or what a kernel is compiled from. A process that finds all machine code does not load Numba.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import crc32c
import pytest
from llvmlite import binding as llvm

from kafka_log_lake.udfs.kernels import machine_code
from tests.support.processes import as_anybody

ROOT = Path(__file__).parents[2]
# A kernel at work, and where its machine code is kept
RUN = """
import numpy as np
from kafka_log_lake.udfs.kernels import framing, machine_code
assert framing.batch_size(np.zeros(4, dtype=np.uint8), 0, 4) == framing.TOO_SHORT
print(machine_code.CACHE)
"""


def run(code: Path, program: str = RUN, **environment: str) -> str:
    """The cache's folder that a new process takes which has its modules from ``code``; empty for none.

    program: what else prints something.
    """
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    arguments = ["-c", program]
    command = as_anybody(*arguments) if os.geteuid() == 0 else [sys.executable, *arguments]
    environment = {**kept, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        command, env=environment, cwd=code.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A copy of the package, as pip would install it."""
    package = "kafka_log_lake"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / package, tmp_path / "code" / package, ignore=ignored)
    return tmp_path / "code"


def close(folder: Path) -> None:
    """Takes the right to write away, of every folder below too."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o555)


def files(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def test_next_to_the_sources_where_they_are_ours(code: Path) -> None:
    folder = Path(run(code))
    assert folder.parent == code / "kafka_log_lake" / "udfs" / "kernels" / "__pycache__"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(files(folder)) == {".nbc", ".nbi", ".o"}


def test_in_the_user_s_cache_where_the_sources_cannot_be_written(code: Path, tmp_path: Path) -> None:
    close(code / "kafka_log_lake" / "udfs")
    folder = Path(run(code, HOME=str(tmp_path / "home")))
    assert folder.parent == tmp_path / "home" / ".cache" / "kafka-log-lake"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_in_the_temporary_folder_for_a_user_without_a_home(code: Path, tmp_path: Path) -> None:
    close(code / "kafka_log_lake" / "udfs")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    place = {"HOME": "/dev/null/nobody", "TMPDIR": str(temporary)}
    temporary.chmod(0o777)  # whoever may replace our folder could put code there
    assert run(code, **place) == ""
    temporary.chmod(0o1777)
    folder = Path(run(code, **place))
    assert (folder.parent, folder.stat().st_mode & 0o777) == (temporary, 0o700)
    assert set(files(folder)) == {".nbc", ".nbi", ".o"}
    theirs = folder.rename(tmp_path / "theirs")
    folder.symlink_to(theirs)
    assert run(code, **place) == ""


# A process that begins to decode. Only one kernel is compiled, which is called later too
ENSURE = """
import sys
import numpy as np
from kafka_log_lake.udfs.decoder import compile_kernels
from kafka_log_lake.udfs.kernels import framing
data = np.zeros(4, dtype=np.uint8)
compile_kernels._compile = lambda folder: framing.batch_size(data, 0, 4)
compile_kernels.ensure_compiled()
framing.batch_size(data, 0, 4)
print("compiled" if "numba" in sys.modules else "found")
"""


def test_the_next_environment_of_the_same_user_takes_what_one_compiled(code: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(code, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")))

    home = {"HOME": str(tmp_path / "home")}
    assert [run(copied(name), ENSURE, **home) for name in ("first", "next")] == ["compiled", "found"]
    moved = (tmp_path / "next").rename(tmp_path / "unpacked elsewhere")
    assert run(moved, ENSURE, HOME=str(tmp_path / "of another user")) == "found"
    assert run(copied("other"), ENSURE, NUMBA_CPU_NAME="x86-64-v2", **home) == "compiled"
    (kept,) = (tmp_path / "home" / ".cache" / "kafka-log-lake").iterdir()
    kept.chmod(0o755)
    assert run(copied("last"), ENSURE, **home) == "compiled"


def test_out_of_a_zip_as_spark_ships_it(code: Path, tmp_path: Path) -> None:
    package = tmp_path / "code.zip"
    with zipfile.ZipFile(package, "w") as made:
        for path in (code / "kafka_log_lake").rglob("*.py"):
            made.write(path, path.relative_to(code))
    folder = Path(run(package, HOME=str(tmp_path / "home")))
    assert folder.parent == tmp_path / "home" / ".cache" / "kafka-log-lake"
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.nbi")}
    other = package.rename(tmp_path / "code of the next job.zip")
    assert Path(run(other, HOME=str(tmp_path / "home"))) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.nbi")} == before


def test_what_a_wheel_brings_is_used_and_nothing_is_compiled(code: Path, tmp_path: Path) -> None:
    level = machine_code.level_of(llvm.get_host_cpu_features())
    assert level is not None, "this machine is older than what the wheel brings kernels for"
    target = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": f"+{machine_code.PRODUCT}"}
    cache = Path(run(code, HOME=str(tmp_path), **target))
    shutil.copytree(cache, code / "kafka_log_lake" / "udfs" / machine_code.COMPILED / cache.name / level)
    shutil.rmtree(cache)
    again = Path(run(code, HOME=str(tmp_path)))
    assert (again, files(again)) == (cache, [])
    package = tmp_path / "code.zip"
    with zipfile.ZipFile(package, "w") as made:
        for path in (code / "kafka_log_lake").rglob("*.*"):
            made.write(path, path.relative_to(code))
    assert files(Path(run(package, HOME=str(tmp_path / "home")))) == []


def test_the_level_of_a_processor() -> None:
    v2 = dict.fromkeys(machine_code.LEVELS["x86-64-v2"], True)
    v3 = dict.fromkeys(machine_code.LEVELS["x86-64-v3"], True)
    assert (machine_code.level_of(v2), machine_code.level_of(v3)) == ("x86-64-v2", "x86-64-v3")
    assert machine_code.level_of({**v3, "avx2": False}) == "x86-64-v2"
    assert machine_code.level_of({**v3, "pclmul": False}) is None
    assert machine_code.level_of({}) is None


def test_what_was_compiled_moves_with_its_environment(code: Path, tmp_path: Path) -> None:
    before = Path(run(code))
    times = {path.name: path.stat().st_mtime_ns for path in before.glob("*.nb?")}
    moved = code.rename(tmp_path / "unpacked elsewhere")
    after = Path(run(moved))
    assert after.relative_to(moved) == before.relative_to(code)
    assert {path.name: path.stat().st_mtime_ns for path in after.glob("*.nb?")} == times != {}


class Trap:
    """What an attacker would leave where Numba reads its index."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.path), 0o700)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755, 0o701])
def test_a_folder_that_others_can_write_or_read_is_not_used(code: Path, tmp_path: Path, mode: int) -> None:
    name = Path(run(code)).name
    shutil.rmtree(code / "kafka_log_lake" / "udfs" / "kernels" / "__pycache__")
    made = tmp_path / "cache" / name
    sprung = tmp_path / "sprung"
    made.mkdir(parents=True)
    for module in ("framing", "jit"):
        for function in re.findall(
            r"^def (\w+)", (code / "kafka_log_lake/udfs/kernels" / f"{module}.py").read_text(), re.M
        ):
            trap = made / f"{module}.{function}-1.py311.nbi"
            trap.write_bytes(pickle.dumps(Trap(sprung)))
    made.chmod(mode)
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ""
    assert not sprung.exists()


def test_nor_one_below_a_folder_that_others_can_change(code: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert run(code, NUMBA_CACHE_DIR=str(shared)) == ""


def test_nor_a_link_that_somebody_left(code: Path, tmp_path: Path) -> None:
    name = Path(run(code)).name
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / name).symlink_to(tmp_path / "theirs")
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ""
    assert files(tmp_path / "theirs") == []


@pytest.mark.parametrize("room", machine_code.KERNEL_ROOMS)
def test_other_bytes_have_another_folder(code: Path, room: str) -> None:
    before = run(code)
    place = code / "kafka_log_lake" / "udfs" / room
    path = place if place.is_file() else place / "layout.py" if room == "format" else max(place.glob("*.py"))
    path.write_text(path.read_text() + "# upgraded in place\n")
    assert run(code) != before


def test_every_kernel_lies_where_the_folder_s_name_sees_it() -> None:
    modules = [path for path in (ROOT / "udfs").rglob("*.py") if "__pycache__" not in path.parts]
    with_kernels = [
        str(path.relative_to(ROOT / "udfs"))
        for path in modules
        if re.search(r"^\s*@(kernel|inlined|called_by_kernels|intrinsic|overload)\b", path.read_text(), re.M)
    ]
    assert len(with_kernels) > 5
    assert all(name.startswith(machine_code.KERNEL_ROOMS) for name in with_kernels)


# Two processes that begin at the same time; what would compile only says so
TOGETHER = """
import sys, time
from kafka_log_lake.udfs.decoder import compile_kernels
compile_kernels._compile = lambda folder: (print("compiling"), time.sleep(1))
compile_kernels.ensure_compiled()
compile_kernels.ensure_compiled()
"""


def test_of_the_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TOGETHER]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    assert sorted(one.communicate(timeout=60)[0] for one in running) == ["", "compiling\n"]


def test_where_nothing_can_be_kept_a_process_says_that_it_compiles(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    code = "from kafka_log_lake.udfs.decoder.compile_kernels import ensure_compiled; ensure_compiled()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "no folder can keep it" in done.stderr


def answered(code: str, **environment: str) -> str:
    """What a process prints that runs this in the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return done.stdout.strip()


def test_setup_left_nothing_to_compile() -> None:
    """What decodes real segments, typed ones too, is in the folder that ``ensure_compiled`` filled."""
    code = """
import sys
from pathlib import Path
from kafka_log_lake import read_segment
for case in ("v0-codec-gzip", "v1-codec-lz4", "v2-codec-zstd", "v2-headers"):
    read_segment(next(Path("tests/data/corpus", case).rglob("*.log")))
for topic in ("avro-logical", "avro-nested", "pb-kinds", "pb-wkt", "json-schema"):
    read_segment(next(Path("tests/data/typed/data", topic + "-0").glob("*.log")), typed=True)
print("numba" in sys.modules)
"""
    assert answered(code) == "False"


# The checksum of a text by a kernel, whether Numba was loaded for it, and how many files are kept
CHECKSUM = """
import sys, numpy as np
from pathlib import Path
from kafka_log_lake.udfs.kernels import checksums, machine_code
text = np.frombuffer(b"123456789" * 200, dtype=np.uint8)
found = checksums.crc32c(text, 0, len(text))
print(found, "numba" in sys.modules, len(list(Path(machine_code.CACHE).glob("*.o"))))
"""


def test_machine_code_that_a_crash_left_torn_is_made_again(tmp_path: Path) -> None:
    right = crc32c.crc32c(b"123456789" * 200)
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert answered(CHECKSUM, **place) == f"{right} True 1"
    assert answered(CHECKSUM, **place) == f"{right} False 1"
    (kept,) = tmp_path.rglob("*.o")
    whole = kept.read_bytes()
    for torn in (b"", whole[:5], whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        kept.write_bytes(torn)
        assert answered(CHECKSUM, **place) == f"{right} True 1"
        assert kept.read_bytes() == whole
    assert answered(CHECKSUM, **place) == f"{right} False 1"


def test_machine_code_is_kept_where_no_file_gets_another_name(tmp_path: Path) -> None:
    code = "from tests.support import fuse_mount; fuse_mount.refuse_other_names()" + CHECKSUM
    right, place = crc32c.crc32c(b"123456789" * 200), {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert [answered(code, **place) for _ in range(2)] == [f"{right} True 1", f"{right} False 1"]


# A kernel as it was compiled, and out of its file: what it is given decides
OTHER_ARGUMENTS = """
import numpy as np
from kafka_log_lake.udfs.kernels import checksums
text = np.arange(4000, dtype=np.uint8)
frozen = text.copy()
frozen.flags.writeable = False
for given in (text, frozen, text.reshape(2, -1)[1], text[5:]):
    print(checksums.crc32c_table(given, 0, len(given)), checksums.crc32c_table(given, 3, len(given), 7))
for wrong in (b"123", [1], "text"):
    try:
        checksums.crc32c_table(wrong, 0, 3)
    except TypeError:
        print("TypeError")
try:
    checksums.crc32c_table(text, 0, 1 << 63)
except OverflowError:
    print("OverflowError")
"""


def test_each_kind_of_arguments_has_its_own_machine_code(tmp_path: Path) -> None:
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    text = bytes(range(256)) * 15 + bytes(range(160))
    given = (text, text, text[len(text) // 2 :], text[5:])
    wanted = [f"{crc32c.crc32c(each)} {crc32c.crc32c(each[3:], 7)}" for each in given]
    wanted += ["TypeError"] * 3 + ["OverflowError"]
    for _ in ("compiled", "kept"):
        assert answered(OTHER_ARGUMENTS, **place).splitlines() == wanted
