# Makes what the servers serve, starts them, and makes /srv/ready. Runs in the files of the image `clients`, as root.
cd /srv
chmod 755 /srv

# Pages.
mkdir -p www
head -c 20971521 /dev/urandom >www/big
sha256sum <www/big | cut -c1-64 >www/big.sha256
echo small >www/small

# A repository with a file that no client sends in one piece.
mkdir -p git
git init -q --bare -b main git/r.git
git -C git/r.git config http.receivepack true
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
git init -q -b main made
head -c 6000001 /dev/urandom >made/blob
for i in $(seq 300); do echo "$i" >"made/f$i"; done
git -C made add .
git -C made commit -qm one
git -C made push -q ../git/r.git main
git -C git/r.git update-server-info

python3 make.py

# A repository of Debian packages.
mkdir -p package/DEBIAN package/opt
printf 'Package: farm-thing\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: thing\n' >package/DEBIAN/control
head -c 3000000 /dev/urandom >package/opt/farm-thing
mkdir -p deb.farm.test/pool
dpkg-deb -b package deb.farm.test/pool/farm-thing_1.0_all.deb >/dev/null
(cd deb.farm.test && apt-ftparchive packages pool >Packages && gzip -k Packages && apt-ftparchive release . >../Release && mv ../Release .)

# sshd, for git over ssh: root by key.
ssh-keygen -q -t ed25519 -N '' -f key
mkdir -p /run/sshd /root/.ssh
cp key.pub /root/.ssh/authorized_keys
chmod 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f hostkey
/usr/sbin/sshd -D -e -f /dev/null -p 2222 -h /srv/hostkey -o UsePAM=no -o PidFile=none -o StrictModes=no -o Subsystem="sftp internal-sftp" &

git daemon --base-path=/srv/git --export-all --enable=receive-pack --listen=93.184.218.10 --listen=2606:2800:220:3::10 &

redis-server --bind 93.184.218.10 2606:2800:220:3::10 --port 16379 --protected-mode no --save '' --dir /run >/dev/null &

pg=/usr/lib/postgresql/15/bin
mkdir -p db /run/postgresql
cp tls.key db.key
chown postgres: db db.key /run/postgresql
chmod 600 db.key
runuser -u postgres -- $pg/initdb -D db/data -A trust >/dev/null
echo 'host all all all trust' >>db/data/pg_hba.conf
runuser -u postgres -- $pg/postgres -D db/data -p 15432 -c listen_addresses='93.184.218.10,2606:2800:220:3::10' \
    -c fsync=off -c ssl=on -c ssl_cert_file=/srv/tls.pem -c ssl_key_file=/srv/db.key &

python3 app.py &
nginx -c /srv/nginx.conf &

for port in 80 443 2222 9418 16379 15432 9000 50051 8765; do
    at=93.184.218.10
    [ $port != 9000 ] || at=127.0.0.1
    until (exec 3<>/dev/tcp/$at/$port) 2>/dev/null; do
        sleep 0.05
    done
done
touch ready
wait
