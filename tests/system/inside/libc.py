"""C calls that Python's library lacks, for the checks beside this file. A failed call raises OSError."""

import ctypes
import os

lib = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """Integers are passed as longs, so that flags and pointers keep all their bits."""
    f = getattr(lib, name)
    f.restype = ctypes.c_long
    r = f(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    # What returns an int leaves the upper half of the register as it was.
    if r == -1 or r & 0xffffffff == 0xffffffff:
        e = ctypes.get_errno()
        raise OSError(e, f"{name}: {os.strerror(e)}")
    return r


def refused(error, f, *args):
    """The call must fail, and with this error, or one of these."""
    errors = error if isinstance(error, tuple) else (error,)
    try:
        f(*args)
    except OSError as e:
        assert e.errno in errors, f"{e} instead of {' or '.join(map(os.strerror, errors))}"
    else:
        raise AssertionError(f"{args} was let through")


def in_child(f, *args):
    """Runs f in a child; its exception is the child's end, and an AssertionError here."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            f(*args)
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
