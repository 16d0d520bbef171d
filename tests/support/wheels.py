"""Wheels built by hand, for installations without an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(directory: Path, version: str, name: str = "greeting-parts", **files: str) -> None:
    """Build a wheel as a build tool would."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    texts = {f"{module}/__init__.py": f"VERSION = {version!r}\n", **files}
    texts[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*texts, f"{info}/RECORD"))
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in texts.items():
            archive.writestr(zipfile.ZipInfo(file), text)  # with the time of no day: the same each time


def unpacked(directory: Path, version: str, name: str = "greeting-parts") -> Path:
    """Return a directory as pip would install it from a wheel."""
    wheel(directory, version, name)
    with zipfile.ZipFile(next(directory.glob("*.whl"))) as archive:
        archive.extractall(directory / "installed")
    return directory / "installed"
