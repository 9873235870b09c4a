# A distribution made from source, a wheel, two kinds of virtual environment.
# as: dev
cd "$(mktemp -d)"
mkdir -p pkg/src/inside
cat >pkg/pyproject.toml <<'C'
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "inside"
version = "1.0"
[project.scripts]
inside = "inside:main"
C
echo 'def main(): print("inside runs")' >pkg/src/inside/__init__.py
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1
python3 -m venv --system-site-packages a
a/bin/pip wheel -q --no-build-isolation --no-deps -w dist ./pkg
a/bin/python -c 'from setuptools import setup' # the build needs it
python3 -m venv b
b/bin/pip install -q --find-links dist inside
[ "$(b/bin/inside)" = "inside runs" ]
b/bin/pip uninstall -q -y inside
(cd pkg && ../a/bin/python -c 'from setuptools import build_meta; print(build_meta.build_sdist("../dist"))')
a/bin/pip install -q --no-build-isolation dist/inside-1.0.tar.gz
[ "$(a/bin/inside)" = "inside runs" ]
! b/bin/pip install -q --find-links dist no-such-thing
