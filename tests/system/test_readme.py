"""The README's examples, run as they are printed: each ```sh block that follows the comment <!-- run -->."""

import re
import subprocess

import pytest

import qsdaemon

TEXT = (qsdaemon.ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^<!-- run -->\n```sh\n(.*?)^```", TEXT, re.M | re.S)


def run(block, daemon, tmp_path):
    env = {
        "PATH": f"{daemon.lib_dir}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(tmp_path),
        "QUICKSAND_URL": daemon.url,
        "QUICKSAND_TOKEN": daemon.token,
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    return subprocess.run(["bash", "-euo", "pipefail", "-c", block], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


def test_there_are_examples():
    assert len(BLOCKS) == 3
    assert len(re.findall(r"^```sh", TEXT, re.M)) == len(BLOCKS), "an example that no test runs"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_works_as_printed(daemon, tmp_path, number):
    r = run(BLOCKS[number], daemon, tmp_path)
    assert r.returncode == 0, r.stdout
    expected = [["42", "hello", '"code"'], ["Linux", "from inside"], ["greeter\nbuilt here\n"]][number]
    for word in expected:
        assert word in r.stdout, r.stdout


def test_every_link_leads_somewhere():
    for page in [*qsdaemon.ROOT.glob("*.md"), *qsdaemon.ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_threat_model_names_tests_that_are_there():
    text = (qsdaemon.ROOT / "docs/threat-model.md").read_text()
    tests = qsdaemon.ROOT / "tests"
    known = set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in tests.glob("*/*.py")), re.M))
    known |= {p.name for p in [*tests.glob("*/*.c"), *tests.glob("*/*.py")]}
    named = set(re.findall(r"test_\w+(?:\.py)?|\w+_(?:test|fuzz)\.c", text))
    assert len(named) > 30 and named <= known, named - known
