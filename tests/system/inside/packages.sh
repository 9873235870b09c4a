# A package made here, installed from a file, from a directory and from a server; triggers, users, configuration files.
# as: root
top=$(mktemp -d)
cd "$top"
chmod 755 .
mkdir -p hello/DEBIAN hello/usr/bin hello/usr/share/man/man1 hello/etc repo
cat >hello/DEBIAN/control <<'C'
Package: hello-inside
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: a package for a test
C
printf '#!/bin/sh\necho hello from a package\n' >hello/usr/bin/hello-inside
chmod 755 hello/usr/bin/hello-inside
echo conf >hello/etc/hello-inside.conf
echo /etc/hello-inside.conf >hello/DEBIAN/conffiles
printf '#!/bin/sh\nset -e\nadduser --system --group --quiet helloinside\nchown helloinside: /etc/hello-inside.conf\n' >hello/DEBIAN/postinst
printf 'interest-noawait /srv\n' >hello/DEBIAN/triggers
chmod 755 hello/DEBIAN/postinst
fakeroot dpkg-deb --build hello repo/hello-inside_1.0_all.deb
export DEBIAN_FRONTEND=noninteractive
rm -f /etc/apt/sources.list.d/*

apt-get install -y ./repo/hello-inside_1.0_all.deb
[ "$(hello-inside)" = "hello from a package" ]
[ "$(stat -c %U:%G /etc/hello-inside.conf)" = helloinside:helloinside ]
dpkg -V hello-inside
[ "$(dpkg -S /usr/bin/hello-inside)" = "hello-inside: /usr/bin/hello-inside" ]
apt-get purge -y hello-inside
[ ! -e /etc/hello-inside.conf ]

(cd repo && apt-ftparchive packages . >Packages && gzip -k Packages && apt-ftparchive release . >Release)
echo "deb [trusted=yes] file:$top/repo ./" >/etc/apt/sources.list
apt-get update
apt-get install -y hello-inside
apt-get purge -y hello-inside

python3 -m http.server 8099 --bind 127.0.0.1 --directory repo 2>served &
until grep -q Serving served || curl -fsS http://127.0.0.1:8099/ >/dev/null 2>&1; do sleep 0.1; done
echo "deb [trusted=yes] http://127.0.0.1:8099/ ./" >/etc/apt/sources.list
apt-get update
apt-get install -y hello-inside
[ "$(hello-inside)" = "hello from a package" ]
apt-get purge -y hello-inside
kill %1
dpkg --audit
dpkg-reconfigure -f noninteractive tzdata
# A package of the image is unpacked again over its own files, which lie in a layer below.
cd "$top"
fakeroot dpkg-deb --version >/dev/null
update-alternatives --display editor >/dev/null || true
ldconfig
