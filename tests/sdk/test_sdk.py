"""Every case of the client programs below js/, python/ and go/, one result each."""

import pytest

import programs as sdk_programs

CASES = [pytest.param(c, id=c.id, marks=[] if c.is_core else [pytest.mark.rest]) for c in sdk_programs.all_cases()]


@pytest.mark.parametrize("case", CASES)
def test_sdk(programs, case):
    result = programs(case.program).result(case.name)
    assert result["ok"], result["error"]
