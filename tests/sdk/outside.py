"""
A daemon in a namespace without an uplink, with the world of tests/network outside of it: for cases about what may leave.

Everything of it is done by one thread, which lives in that namespace and whose children do too: so the client programs find the
daemon at its loopback address as elsewhere. Used by conftest.py.
"""

import concurrent.futures
import pathlib
import shutil
import sys

import qsdaemon

HERE = pathlib.Path(__file__).resolve().parent
NETWORK = HERE.parent / "network"
sys.path.append(str(NETWORK))

import world as world_module  # noqa: E402

# The topics of programs that need it.
TOPICS = ("network", "outbound")


class Outside:
    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.home = qsdaemon.make_dir("qs-world-")
        self.home.chmod(0o755)          # egress reads the authority
        self.daemon = None

    def do(self, function, *args):
        return self.thread.submit(function, *args).result()

    def start(self):
        self.do(self.begin)

    def begin(self):
        world_module.new_namespace()
        world_module.sh("ip link set lo up")
        world_module.World(self.home)
        self.daemon = qsdaemon.Daemon(qsdaemon.build_dir(), egress_dns=world_module.DNS,
                                      egress_ca=self.home / "ca.pem")
        self.daemon.start()
        self.daemon.import_base()

    def stop(self):
        """What is left that should not be, and reports of the sanitizers."""
        left, tail, reports = [], "", []
        if self.daemon is not None:
            left = self.do(self.daemon.stop)
            tail = self.daemon.log_tail()
            reports = self.daemon.sanitizer_reports()
            self.do(self.daemon.purge)
        shutil.rmtree(self.home, ignore_errors=True)
        self.thread.shutdown()
        return left, tail, reports


def env():
    """What the cases need of it."""
    return {"QS_INSIDE": str(NETWORK / "inside.py"), "QS_ASK": str(HERE / "ask.py")}
