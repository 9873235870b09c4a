# An index by name: a package and what it needs, with and without a cache.
cd "$(mktemp -d)"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_INDEX_URL=https://pypi.farm.test/simple
python3 -m pip install -q --target t farm-thing
[ "$(PYTHONPATH=t python3 -c 'import farm_thing, farm_part; print(farm_thing.version, farm_part.version)')" = "1.0 2.0" ]
python3 -m pip download -q --no-cache-dir -d d farm-thing
[ "$(ls d/*.whl | wc -l)" = 2 ]
! python3 -m pip install -q --target u no-such-thing
