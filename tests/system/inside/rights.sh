# Programs with the setuid bit and with file capabilities.
# as: dev
[ "$(sudo id -u)" = 0 ]
[ "$(sudo -u nobody id -un)" = nobody ]
[ "$(sudo sh -c 'echo $SUDO_USER')" = dev ]
[ "$(sudo su - dev -c 'id -un; pwd' | tr '\n' ' ')" = "dev /home/dev " ]
[ "$(sudo runuser -u nobody -- id -un)" = nobody ]
[ "$(sudo setpriv --reuid=dev --regid=dev --init-groups id -un)" = dev ]
! su -c true root </dev/null 2>/dev/null
sudo sh -c 'echo root:secret | chpasswd'
echo secret | su -c 'id -u' root 2>/dev/null | grep -qx 0
ping -c 1 -W 10 127.0.0.1 >/dev/null
ping -c 1 -W 10 ::1 >/dev/null
ping -c 1 -W 10 localhost >/dev/null
getcap /usr/bin/ping | grep -q cap_net_raw
cd "$(mktemp -d)"
cp /usr/bin/id mine
sudo chown root: mine
sudo chmod 4755 mine
[ "$(./mine -u)" = 0 ]
cp /usr/bin/python3 bound
sudo setcap cap_net_bind_service=ep bound
./bound -c 'import socket; socket.create_server(("127.0.0.1", 81)).close()'
sudo useradd -m -s /bin/bash extra
sudo usermod -aG dev extra
[ "$(sudo -u extra id -Gn)" = "extra dev" ]
sudo userdel -r extra
newgrp dev </dev/null
crontab -l 2>&1 | grep -q 'no crontab'
