"""A formatter that does as its first word says to the file that its last word names."""

import os
import sys
import time
from pathlib import Path

MODE, *REST, NAME = sys.argv[1:]
FILE = Path(NAME)


def main() -> None:
    match MODE:
        case "upper":
            FILE.write_text(FILE.read_text().upper())
        case "sign":
            FILE.write_text(f"{FILE.read_text()}{os.environ['SIGNED']}\n")
        case "fail":
            FILE.write_text("half of it")
            sys.exit("a syntax error \x1b[31min it")
        case "hang":
            FILE.write_text("half of it")
            time.sleep(3600)
        case "delete":
            FILE.unlink()
        case "link":
            FILE.unlink()
            FILE.symlink_to(REST[0])
        case "folder":
            FILE.unlink()
            FILE.mkdir()
        case "outside":
            Path(REST[0]).write_text("escaped")


if __name__ == "__main__":
    main()
