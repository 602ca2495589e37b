"""The page that leads a browser to the console: a private file, for what a program is started with everybody may see.

It makes no link and opens no browser. The page stays until the next takes its place: its link is good once, for 30 s.
"""

import html
from pathlib import Path

from control.home import Home, write_whole

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Splash</title>
<meta http-equiv="refresh" content="0; url={link}">
<p><a href="{link}">Splash</a></p>
</html>
"""


def written_page(home: Home, link: str) -> Path:
    """Raises HomeUnusable."""
    file = home.root / "run" / "open-console.html"
    write_whole(file, PAGE.format(link=html.escape(link)).encode())
    return file
