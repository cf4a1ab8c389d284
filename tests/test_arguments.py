"""Numbers that are none, or beyond every float, are refused in words."""

import os

import pytest

from lakelatch.arguments import number
from lakelatch.errors import InputError
from lakelatch.storage import read_input


def test_what_is_no_number_between_the_bounds_is_refused():
    for value in (10**400, -(10**400), 10**5000, float("nan"), float("inf"), True, "1", None, 1.5):
        with pytest.raises(InputError, match=r"n=.* is not a whole number of at least 1"):
            number(value, "n", least=1, whole=True)


@pytest.mark.timeout(60)
def test_a_small_file_that_somebody_names_is_read_within_bounds(tmp_path):
    """Also the pipe of a shell; for one that nobody writes to, nobody waits."""
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    read, write = os.pipe()
    os.write(write, b"token")
    os.close(write)
    assert read_input(str(tmp_path / "file")) == b"x"
    assert read_input(str(tmp_path / "pipe")) == b""
    assert read_input(f"/dev/fd/{read}") == b"token"
    os.close(read)
    for path, error in (
        ("/dev/zero", "File too large"),
        (str(tmp_path), "Is a directory"),
        ("/nowhere", "No such file"),
    ):
        with pytest.raises(OSError, match=error):
            read_input(path)
