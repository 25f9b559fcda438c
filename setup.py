"""What pyproject.toml cannot say: a wheel carries the tutorials, as data of tinycb.learn.

In a checkout they are read where they are (`tinycb/learn/files.py`), so an editable install copies nothing.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TUTORIALS = Path("tutorials")


class BuildWithTutorials(build_py):
    """Builds the packages, and puts the chapters, exercises, checks and solutions beside tinycb.learn."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for path, target in self._tutorials():
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else outputs + [str(target) for _, target in self._tutorials()]

    def _tutorials(self) -> list[tuple[Path, Path]]:
        folder = Path(self.build_lib, "tinycb", "learn")
        files = [TUTORIALS / "README.md", *sorted(TUTORIALS.rglob("[0-9][0-9]_*.py"))]
        return [(path, folder / path) for path in files]


setup(cmdclass={"build_py": BuildWithTutorials})
