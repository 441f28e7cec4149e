"""Bakes matplotlib's font list once, inside a sandbox, so that no job has to search the fonts of the machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_SYSTEM_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts")

# Runs inside. Writes the list, and settings that fall back to a font with Chinese, Japanese and Korean glyphs.
CODE = r"""
import re, shutil
from pathlib import Path
import matplotlib
from matplotlib import font_manager
fonts = sorted({entry.name for entry in font_manager.fontManager.ttflist})
wide = [name for name in fonts if re.search(r"Sans.*CJK|Source Han Sans|WenQuanYi|Droid Sans Fallback", name)]
wide.sort(key=lambda name: (not name.endswith("SC"), not name.endswith("JP"), name))
for path in Path("/tmp/mpl").glob("fontlist-*.json"):
    shutil.copy(path, "/workspace")
families = ", ".join(["DejaVu Sans", *wide[:1]])
Path("/workspace/matplotlibrc").write_text(f"backend: Agg\nfont.family: {families}\naxes.unicode_minus: False\n")
print(wide[0] if wide else "")
"""


def folder(state: Path, site_packages: str) -> Path:
    """Return where the list for these packages and the machine's present fonts belongs."""
    marks = [site_packages]
    for name in (*_SYSTEM_FONTS, f"{site_packages}/matplotlib"):
        for parent, _, _ in os.walk(name) if name in _SYSTEM_FONTS else [(name, [], [])]:
            if os.path.exists(parent):
                marks.append(f"{parent} {os.stat(parent).st_mtime_ns}")
    key = hashlib.sha256("\n".join(sorted(marks)).encode()).hexdigest()[:16]
    return state / "fonts" / key


def is_baked(directory: Path) -> bool:
    """Return whether the list is there."""
    return (directory / "matplotlibrc").exists()


def store(directory: Path, files: dict[str, bytes]) -> None:
    """Keep what the bake made; the settings come last, because their presence says that all is there."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "matplotlibrc"):
        target = directory / os.path.basename(name)
        target.write_bytes(files[name])
        target.chmod(0o644)
