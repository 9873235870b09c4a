# Languages and time zones, and programs that look around: they must find what there is, and neither fail nor hang.
# as: root
sed -i 's/^# *\(de_DE.UTF-8\)/\1/' /etc/locale.gen
locale-gen
[ "$(LC_ALL=de_DE.UTF-8 date -d @0 +%A)" = Donnerstag ]
[ "$(LC_ALL=de_DE.UTF-8 python3 -c 'import locale; locale.setlocale(locale.LC_ALL, ""); print(locale.str(1.5))')" = 1,5 ]
[ "$(TZ=Asia/Tokyo date -d @0 +%H:%M)" = 09:00 ]
was=$(readlink /etc/localtime)
ln -sf /usr/share/zoneinfo/America/New_York /etc/localtime
[ "$(date -d @0 +%Z)" = EST ]
ln -sf "$was" /etc/localtime
ss -ltn | grep -q State
netstat -ltn | grep -q Proto
ip -br addr | grep -q '^lo .*127.0.0.1/8'
ip -br addr | grep -q '^lo .*::1/128'
ifconfig lo | grep -q 'inet 127.0.0.1'
ip route
lsof -p $$ | grep -q bash
pstree | grep -q ^quicksand-init
hostname -f
[ "$(hostname -i)" = 127.0.1.1 ]
last
systemd-detect-virt || true
systemd-detect-virt -c || true
killall -q no-such-program || true
fuser -v / 2>/dev/null || true
# A job that waits for its minute would take too long; that the daemon starts and reads its table is what differs here.
echo '* * * * * true' | crontab -
crontab -l | grep -q '^\* \* \* \* \* true'
crontab -r
cron
pkill -x cron
