# SPDX-License-Identifier: GPL-2.0
"""The script that patches the kernel's source: its results, and its errors for other patches."""

import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
CODE = "int f(int x)\n{\n\tg(x);\n\treturn h(x);\n}\n"
# Calls another function, and names the file that it changes.
PATCH = "// Changes: lib/f.c +1 -1\n@@\nexpression x;\n@@\n-g(x);\n+k(x);\n"


class Source:
    """A source tree with two files, and the patches for it."""

    def __init__(self, top):
        self.top, self.tree, self.patches = top, top / "linux", top / "patches"
        (self.tree / "lib").mkdir(parents=True)
        self.patches.mkdir()
        (self.tree / "Makefile").write_text("kernelversion:\n\t@echo 7.2\n")
        (self.tree / ".complete").touch()
        for name in ("f.c", "other.c"):
            (self.tree / "lib" / name).write_text(CODE)

    def run(self, patch=None, name="a.cocci", **env):
        if patch is not None:
            (self.patches / name).write_text(patch)
        return subprocess.run([TOP / "scripts/patch-kernel.sh", self.tree, self.patches],
                              env={**os.environ, "RDS_CACHE": str(self.top / "cache"), **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def made(self, patch=None, **kwargs):
        """Returns the path of the tree that is printed."""
        done = self.run(patch, **kwargs)
        assert done.returncode == 0, str(done)
        path = Path(done.stdout.removesuffix("\n"))
        assert (path / ".complete").exists()
        return path

    def refused(self, patch, **kwargs):
        """Returns the error. A second attempt fails alike, and no tree is left as complete."""
        said = {self.run(patch, **kwargs).stderr for _ in range(2)}
        assert len(said) == 1 and self.run(**kwargs).stdout == "", said
        assert [x.parent for x in self.top.glob("*/.complete")] == [self.tree]
        return said.pop()


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path)


def test_patched_copy(source):
    path = source.made(PATCH)
    assert (path / "lib/f.c").read_text() == CODE.replace("g(x)", "k(x)")
    assert path.parent == source.tree.parent
    # The copy has links to unchanged files, and the script has written through none of them.
    assert (source.tree / "lib/f.c").read_text() == CODE
    assert (path / "lib/other.c").samefile(source.tree / "lib/other.c")
    assert not (path / ".complete").samefile(source.tree / ".complete")
    assert sorted(x.name for x in (path / "lib").iterdir()) == ["f.c", "other.c"]
    assert "+\tk(x);\n" in (path / ".patches.diff").read_text()


def test_one_copy_for_the_same_patches(source):
    path = source.made(PATCH)
    (path / "mark").touch()
    assert source.made() == path and (path / "mark").exists()
    assert source.made(PATCH + "// Another one.\n") != path


def test_patches_follow_each_other(source):
    (source.patches / "b.cocci").write_text(PATCH.replace("g(x)", "l(x)").replace("k(x)", "m(x)"))
    path = source.made(PATCH.replace("k(x)", "l(x)"))
    assert "\tm(x);\n" in (path / "lib/f.c").read_text()


def test_copy_that_was_interrupted(source):
    path = source.made(PATCH)
    (path / ".complete").unlink()
    (path / "lib/f.c").unlink()
    assert source.made() == path and (path / "lib/f.c").exists()


def test_patch_that_changes_nothing(source):
    told = source.refused(PATCH.replace("-g(x)", "-nobody(x)"))
    assert "error: a.cocci no longer applies: it changes nothing in lib/f.c" in told, told


def test_patch_that_changes_nothing_in_one_of_two(source):
    (source.tree / "lib/other.c").write_text("int other;\n")
    told = source.refused("// Changes: lib/other.c +1 -1\n" + PATCH)
    assert "error: a.cocci no longer applies: it changes nothing in lib/other.c" in told, told


def test_patch_that_changes_more(source):
    (source.tree / "lib/f.c").write_text(CODE + CODE.replace("f(", "ff("))
    told = source.refused(PATCH)
    assert "a.cocci no longer applies: it should change +1 -1 lines of lib/f.c, and changes +2 -2" in told, told


def test_patch_of_which_a_part_applies(source):
    told = source.refused(PATCH.replace("+1 -1", "+2 -2") + "@@ @@\n-nobody();\n+k(0);\n")
    assert "a.cocci no longer applies: it should change +2 -2 lines of lib/f.c, and changes +1 -1" in told, told


def test_patch_for_a_file_that_is_gone(source):
    told = source.refused(PATCH.replace("f.c", "gone.c"))
    assert "error: a.cocci: this kernel source has no lib/gone.c" in told, told


def test_patch_that_names_no_file(source):
    told = source.refused(PATCH.replace("Changes", "Would change"))
    assert "error: a.cocci does not say what it changes" in told, told


def test_patch_that_spatch_does_not_understand(source):
    told = source.refused(PATCH + "@@\nnonsense")
    assert "error: a.cocci: spatch failed on lib/f.c" in told, told


def test_no_patches(source):
    told = source.refused(None)
    assert f"error: no semantic patches in {source.patches}" in told, told


def test_no_spatch(source):
    tools = source.top / "bin"
    tools.mkdir()
    for name in ("bash", "cat", "cut", "dirname", "echo", "make", "mkdir", "realpath", "sha256sum"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    told = source.refused(PATCH, PATH=str(tools))
    assert "error: no spatch here to patch the kernel source with: install coccinelle" in told, told


@pytest.mark.parametrize("patch", sorted((TOP / "configs/patches").glob("*.cocci")), ids=lambda x: x.stem)
def test_patches_of_this_project(patch):
    """Each patch has its licence, a comment with its reason, and the files that it changes."""
    text = patch.read_text()
    assert text.startswith("// SPDX-License-Identifier: GPL-2.0\n//\n// ")
    comment = text.partition("\n@")[0]
    assert re.search(r"^// Changes: \S+ \+\d+ -\d+$", comment, re.M)
    assert len(comment.splitlines()) > 8 and max(map(len, text.splitlines())) <= 100
