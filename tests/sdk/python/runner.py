"""
Runs the cases of one file with the Python client: `runner.py case_NAME.py`, inside the virtual environment of tests/sdk/setup.

A case is a function test_NAME or long_NAME. QS_CASES names the chosen ones, one a line. Prints one JSON line a finished case:
{"name", "ok", "error", "ms"}. Four run at a time; those that are marked @alone run last and by themselves.
"""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
printing = threading.Lock()


def run(name, function):
    start = time.monotonic()
    error = None
    try:
        function()
    except BaseException:
        error = traceback.format_exc()
    line = json.dumps({"name": name, "ok": error is None, "error": error, "ms": round((time.monotonic() - start) * 1000)})
    with printing:
        print(line, flush=True)


def main():
    spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {n: f for n, f in vars(module).items() if n.startswith(("test_", "long_"))}
    chosen = pathlib.Path(os.environ["QS_CASES"]).read_text().split("\n") if "QS_CASES" in os.environ else list(found)
    side = [n for n in chosen if not getattr(found[n], "alone", False)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: run(n, found[n]), side))
    for n in chosen:
        if n not in side:
            run(n, found[n])
    import kit
    kit.end()
    sys.stdout.flush()
    os._exit(0)


main()
