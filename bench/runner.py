"""A subject's process: commands as JSON lines on standard input, answers on standard output.

Run it as ``python bench/runner.py ADAPTER`` with the interpreter of the adapter's environment; the
adapter is a module of ``bench/peers`` with a function ``open_subject(geometry)``. Commands:

    {"do": "open", "geometry": {...}, "options": {...}}   a fresh manager; the one before is closed
    {"do": "<work>", ...}              a function of works.py with its arguments
    {"do": "close"}                    ends the process

Every answer is one object; a failure is ``{"error": "..."}``. What a manager prints goes to
standard error.
"""

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

STARTED = time.perf_counter()
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # managers print; answers must stay JSON


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [os.path.join(here, "peers"), here]
    adapter = importlib.import_module(sys.argv[1])
    import_s = time.perf_counter() - STARTED
    from subject import Geometry
    from works import WORKS, warm_up

    subject = None
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        name = command.pop("do")
        try:
            if name == "close":
                answer: dict[str, Any] = {}
            elif name == "open":
                if subject is not None:
                    subject.close()
                geometry, options = Geometry(**command["geometry"]), command.get("options", {})
                if subject is None:
                    first = adapter.open_subject(geometry, **options)
                    warm_up(first)
                    first.close()
                subject = adapter.open_subject(geometry, **options)
                answer = {
                    "name": subject.name,
                    "version": subject.version,
                    "differences": list(subject.differences),
                    "settings": subject.settings,
                    "import_s": import_s,
                }
            else:
                answer = WORKS[name](subject, **command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=ANSWERS)
        if name == "close":
            break
    if subject is not None:
        subject.close()


if __name__ == "__main__":
    main()
