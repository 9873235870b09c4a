"""A terminal of tmux: a program in it, keys to it, what the screen shows. Used by the tests of interactive commands."""

import contextlib
import secrets
import subprocess
import time


class Terminal:
    def __init__(self, command, env, columns=100, rows=30):
        self.socket = f"qs-{secrets.token_hex(4)}"
        line = ["env", "-i", *(f"{k}={v}" for k, v in env.items()), *map(str, command)]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, *line)
        self.tmux("set-option", "-g", "remain-on-exit", "on")

    def tmux(self, *arguments):
        r = subprocess.run(["tmux", "-L", self.socket, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=20)
        assert r.returncode == 0, r.stdout
        return r.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-S", "-200")

    def type(self, text, enter=True):
        self.tmux("send-keys", "-l", text)
        if enter:
            self.tmux("send-keys", "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def wait_for(self, what, seconds=40):
        """`what`: text, or a function of the screen."""
        seen = what if callable(what) else (lambda screen: what in screen)
        give_up = time.monotonic() + seconds
        while not seen(screen := self.screen()):
            assert time.monotonic() < give_up, f"waited {seconds} s for {what!r}; the screen:\n{screen}"
            time.sleep(0.1)
        return screen

    def wait_end(self, seconds=40):
        give_up = time.monotonic() + seconds
        while self.tmux("list-panes", "-F", "#{pane_dead}").strip() != "1":
            assert time.monotonic() < give_up, f"not over after {seconds} s; the screen:\n{self.screen()}"
            time.sleep(0.1)
        return int(self.tmux("list-panes", "-F", "#{pane_dead_status}").strip() or -1)

    def close(self):
        with contextlib.suppress(AssertionError):
            self.tmux("kill-server")


@contextlib.contextmanager
def terminal(command, env, **options):
    t = Terminal(command, env, **options)
    try:
        yield t
    finally:
        t.close()
