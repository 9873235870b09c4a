"""The fixtures of tests/system, for the escape suite."""

import importlib.util
import pathlib
import sys

SYSTEM = pathlib.Path(__file__).resolve().parents[1] / "system"
sys.path.insert(0, str(SYSTEM))
spec = importlib.util.spec_from_file_location("system_conftest", SYSTEM / "conftest.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
globals().update({name: value for name, value in vars(module).items() if not name.startswith("__")})
