"""Build the documentation site: `python -m docs.tools.site` (`make docs`); `--serve` shows it.

Stages all pages under their paths of the repository in build/docs/pages, with the generated
reference, and runs Zensical. A file that a page links becomes a page, too.
"""

import argparse
import functools
import http.server
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.tools import check, reference

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
PAGES = ("*.md", "docs/**/*.md", "deploy/*/README.md", "[a-z]*/README.md")  # no hidden folders
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s#]+)(?=[)#])")
_SHOWN = (".md", ".png", ".svg")  # other linked files become pages with their text


def stage(pages: Path) -> None:
    """Write all pages below this folder."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", pages / "docs" / "images")
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        parts = _FENCE.split(path.read_text("utf-8"))
        parts[::2] = [_LINK.sub(functools.partial(_link, path, pages), part) for part in parts[::2]]
        _write(pages / path.relative_to(ROOT), "".join(parts))
    for name, text in reference.pages():
        _write(pages / "reference" / f"{name}.md", text)


def _link(page: Path, pages: Path, link: re.Match[str]) -> str:
    target = (page.parent / link[2]).resolve()
    if link[2].startswith(("http:", "https:")) or target.suffix in _SHOWN:
        return link[0]
    name = target.relative_to(ROOT)
    text = target.read_text("utf-8").rstrip()
    if target.suffix == ".lock":  # too long for a page
        _write(pages / name, text)
        return link[0]
    front = "---\nsearch:\n  exclude: true\n---\n\n"
    _write(pages / f"{name}.md", f"{front}# {name}\n\n````text\n{text}\n````\n")
    return f"{link[0]}.md"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def build() -> int:
    """Build the site and check it; return the exit code."""
    stage(BUILD / "pages")
    shutil.copy(ROOT / "docs" / "zensical.toml", BUILD)
    zensical = ROOT / ".venv" / "docs" / "bin" / "zensical"
    code = subprocess.run(
        [zensical, "build", "--clean", "--strict", "--config-file", BUILD / "zensical.toml"],
        cwd=BUILD,
        check=False,
    ).returncode
    if code:
        return code
    problems = check.problems(BUILD / "site") + check.list_problems(BUILD / "pages", BUILD / "site")
    print(*problems, sep="\n", end="\n" if problems else "")
    return int(bool(problems))


def serve(port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(BUILD / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)")
        server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Builds the documentation site in build/docs/site."
    )
    parser.add_argument("--serve", action="store_true", help="then show it until Ctrl-C")
    parser.add_argument("--port", type=int, default=8000, help="for --serve (default: %(default)s)")
    options = parser.parse_args()
    code = build()
    if not code and options.serve:
        serve(options.port)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
