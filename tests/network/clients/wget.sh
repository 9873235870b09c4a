# A large file, one resumed, a tree over one connection.
cd "$(mktemp -d)"
want=$(wget -qO- https://www.farm.test/big.sha256)
wget -q https://www.farm.test/big
[ "$(sha256sum big | cut -c1-64)" = "$want" ]
truncate -s 11111111 big
wget -qc https://www.farm.test/big
[ "$(sha256sum big | cut -c1-64)" = "$want" ]
wget -q -O plain http://www.farm.test/big
[ "$(sha256sum plain | cut -c1-64)" = "$want" ]
wget -q -r -np https://pypi.farm.test/simple/
[ "$(find pypi.farm.test -name '*.whl' | wc -l)" = 0 ]
[ "$(find pypi.farm.test/simple -name 'index.html' | wc -l)" = 3 ]
[ "$(wget -qO- --post-data=abc https://www.farm.test/app/upload | cut -c1-2)" = "3 " ]
