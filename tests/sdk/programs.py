"""
The client programs of tests/sdk: which cases they have, and their results as they come.

A program is one file of cases in one language, run with one version of the SDK in one generation (v1, v2). The cases are found by
reading the file, so that pytest knows them before anything is installed or run; the program is started at its first case with the
names of all its chosen cases, and prints one JSON line a case when it is over: {"name", "ok", "error", "ms"}.

Used by test_sdk.py.
"""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
GENERATIONS = ("v1", "v2")
CASE_S = 280
# What runs without --long: the newest JavaScript, Python and Go all in v2, and of everything else the files where it is another
# code of the client or of the server that answers. Commands and files inside a sandbox are the same calls in both generations.
CORE = {
    ("js-0.11.1", "v2"): None,
    ("js-0.11.1", "v1"): {"sandbox", "stdio"},
    ("js-0.9.0", "v2"): {"sandbox"},
    ("js-0.9.0", "v1"): {"exec"},
    ("python", "v2"): None,
    ("python", "v1"): {"sandbox"},
    ("go", "v2"): None,
    ("go", "v1"): {"sandbox"},
}


@dataclasses.dataclass(frozen=True)
class Program:
    """One file, one SDK, one generation."""

    client: str
    path: pathlib.Path
    generation: str

    @property
    def topic(self):
        return self.path.stem.removeprefix("case_").removesuffix("_test")

    @property
    def id(self):
        return f"{self.client}-{self.generation}-{self.topic}"

    @property
    def is_core(self):
        topics = CORE.get((self.client, self.generation), set())
        return topics is None or self.topic in topics


@dataclasses.dataclass(frozen=True)
class Case:
    program: Program
    name: str
    long: bool

    @property
    def id(self):
        return f"{self.program.id}: {self.name}"

    @property
    def is_core(self):
        return self.program.is_core and not self.long


JS_CASE = re.compile(r'^(test|long)\("([^"]+)",(?: \{([^}]*)\},)?', re.M)
PYTHON_CASE = re.compile(r"^(?:@only\(([^)]*)\)\n)?def (test|long)_(\w+)\(", re.M)
GO_CASE = re.compile(r"^func Test(Long)?(\w+)\(t \*testing\.T\) \{(?: // only (\w+))?", re.M)


def wanted(options, client, generation):
    version = re.search(r'only: "([\d.]+)"', options or "")
    which = re.search(r'generation: "(v\d)"', options or "")
    without = re.search(r'not: "([^"]+)"', options or "")
    return ((not version or client.endswith(version[1])) and (not which or which[1] == generation)
            and (not without or f"js-{without[1]}" != f"{client}-{generation}"))


def js_cases():
    for path in sorted((HERE / "js").glob("*.mjs")):
        for client in ("js-0.11.1", "js-0.9.0"):
            for generation in GENERATIONS:
                for kind, name, options in JS_CASE.findall(path.read_text()):
                    if wanted(options, client, generation):
                        yield Case(Program(client, path, generation), name, kind == "long")


def python_cases():
    for path in sorted((HERE / "python").glob("case_*.py")):
        for generation in GENERATIONS:
            for only, kind, name in PYTHON_CASE.findall(path.read_text()):
                if not only or only.strip('"') == generation:
                    yield Case(Program("python", path, generation), f"{kind}_{name}", kind == "long")


def go_cases():
    for path in sorted((HERE / "go").glob("*_test.go")):
        for generation in GENERATIONS:
            for long, name, only in GO_CASE.findall(path.read_text()):
                if name != "Main" and (not only or only == generation):
                    yield Case(Program("go", path, generation), f"Test{long}{name}", bool(long))


def all_cases():
    return [*js_cases(), *python_cases(), *go_cases()]


class Run:
    """A started program; result() waits for the line of one case."""

    def __init__(self, command, env, cwd, names, translate=None):
        self.translate = translate or (lambda line: line)
        self.results = {}
        self.changed = threading.Condition()
        self.over = False
        self.chosen = tempfile.NamedTemporaryFile("w", prefix="qs-sdk-cases-", suffix=".txt")
        self.chosen.write("\n".join(names))
        self.chosen.flush()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env={**env, "QS_CASES": self.chosen.name}, cwd=cwd, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, errors="replace",
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                result = self.translate(json.loads(line))
            except ValueError:
                continue
            if result and "name" in result:
                with self.changed:
                    self.results[result["name"]] = result
                    self.changed.notify_all()
        self.process.wait()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def result(self, name):
        give_up = time.monotonic() + CASE_S
        with self.changed:
            while name not in self.results and not self.over and time.monotonic() < give_up:
                self.changed.wait(1)
            result = self.results.get(name)
        if result is None:
            how = f"ended with {self.process.returncode}" if self.over else f"said nothing for {CASE_S} s"
            return {"ok": False, "error": f"no result: the program {how}\n{self.stderr()}"}
        return result

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()[-4000:].decode(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.join()
        self.chosen.close()
        self.errors.close()


def base_env(daemon, generation, home):
    """What a user would set, and nothing of this machine's own configuration."""
    token_id, secret = daemon.token.split(".", 1)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "MODAL_CONFIG_PATH": str(pathlib.Path(home) / "modal.toml"),
        "MODAL_SERVER_URL": f"http://127.0.0.1:{daemon.port}",
        "MODAL_TOKEN_ID": token_id,
        "MODAL_TOKEN_SECRET": secret,
        "MODAL_SANDBOX_V2": "1" if generation == "v2" else "0",
        "QS_GENERATION": generation,
        "QS_IMAGE": "base",
    }


def go_line(event):
    """go test -json names a case in every event; the text of a failure comes before its end."""
    texts = go_line.texts
    name = event.get("Test")
    if not name or "/" in name:
        return None
    if event["Action"] == "output":
        texts.setdefault(name, []).append(event["Output"])
    if event["Action"] in ("pass", "fail", "skip"):
        return {"name": name, "ok": event["Action"] == "pass", "error": "".join(texts.pop(name, [])),
                "ms": event.get("Elapsed", 0) * 1000}
    return None


go_line.texts = {}


def start(program, directory, daemon, home, names, more):
    env = {**base_env(daemon, program.generation, home), **more}
    if program.client.startswith("js-"):
        env["QS_MODAL_MODULE"] = str(directory / "node_modules/modal/dist/index.js")
        env["QS_SDK_VERSION"] = program.client.removeprefix("js-")
        return Run(["node", program.path], env, home, names)
    if program.client == "python":
        return Run([directory / "bin/python3", HERE / "python/runner.py", program.path], env, home, names)
    pattern = "^(" + "|".join(names) + ")$"
    binary = [directory / "sdktests", "-test.v=test2json", "-test.run", pattern, "-test.parallel", "4", "-test.timeout", "20m"]
    return Run([directory / "test2json", *binary], env, home, names, go_line)
