"""The assembler and the disassembler are found in order, and never silently replaced."""

import os
import stat
from pathlib import Path

import pytest

from tasks.errors import ToolMissing
from tools import toolchain
from tools.toolchain import find_nvdisasm, find_ptxas

FINDERS = [(find_ptxas, "PTXMEND_PTXAS", "ptxas"), (find_nvdisasm, "PTXMEND_NVDISASM", "nvdisasm")]


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(("find", "variable", "name"), FINDERS)
def test_the_wheel_is_found_and_says_its_version(find, variable, name, monkeypatch):
    monkeypatch.delenv(variable, raising=False)
    tool = find()
    assert tool.path.name == name
    assert [part.isdigit() for part in tool.version.split(".")] == [True, True, True]
    assert os.access(tool.path, os.X_OK)


@pytest.mark.parametrize(("find", "variable", "name"), FINDERS)
def test_explicit_goes_before_environment_and_environment_before_the_wheel(
    find, variable, name, monkeypatch, tmp_path
):
    given = script(tmp_path / "given", "echo 'release 98.1, V98.1.2'")
    set_ = script(tmp_path / "set", "echo 'release 99.1, V99.1.3'")
    monkeypatch.setenv(variable, str(set_))
    assert find(given).version == "98.1.2"
    assert find().version == "99.1.3"
    monkeypatch.delenv(variable)
    assert find().path.name == name


def test_path_is_the_last_resort(monkeypatch, tmp_path):
    script(tmp_path / "ptxas", "echo 'V12.9.86'")
    monkeypatch.delenv("PTXMEND_PTXAS", raising=False)
    monkeypatch.setattr(toolchain, "_in_wheel", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas().version == "12.9.86"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(ToolMissing, match=r"pip install 'nvidia-cuda-nvcc"):
        find_ptxas()


def test_a_setting_that_is_wrong_is_told_and_not_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXMEND_PTXAS", str(tmp_path / "absent"))
    with pytest.raises(ToolMissing, match=r"PTXMEND_PTXAS is set to .*absent.*no such file"):
        find_ptxas()
    (tmp_path / "plain").write_text("x")
    with pytest.raises(ToolMissing, match="not an executable file"):
        find_ptxas(tmp_path / "plain")
    with pytest.raises(ToolMissing, match="expected to name a version"):
        find_ptxas(script(tmp_path / "mute", "echo hello; exit 3"))


def test_the_version_is_asked_once_until_the_file_changes(tmp_path):
    log = tmp_path / "log"
    path = script(tmp_path / "ptxas", f"echo x >> {log}; echo V1.2.3")
    assert {find_ptxas(path).version for _ in range(5)} == {"1.2.3"}
    assert log.read_text() == "x\n"
    script(path, "echo V1.2.4")
    os.utime(path, ns=(1, 1))
    assert find_ptxas(path).version == "1.2.4"
