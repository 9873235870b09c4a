# The server as a daemon: load, both kinds of saving (by forked children), what it kept after a restart.
# as: root dev
cd "$(mktemp -d)"
port=$((30000 + $$ % 10000))
serve() { redis-server --daemonize yes --dir "$PWD" --save '' --port $port --unixsocket "$PWD/s" --logfile "$PWD/log"; }
r() { redis-cli -s "$PWD/s" "$@"; }
serve
until [ "$(r ping 2>/dev/null)" = PONG ]; do sleep 0.1; done
redis-benchmark -p $port -q -n 2000 -c 20 -t set,get,lpush >/dev/null
r set kept value
r bgsave
until [ "$(r info persistence | tr -d '\r' | grep -c 'rdb_bgsave_in_progress:0')" = 1 ]; do sleep 0.1; done
r info persistence | grep -q 'rdb_last_bgsave_status:ok'
r config set appendonly yes
until [ "$(r info persistence | tr -d '\r' | grep -c 'aof_rewrite_in_progress:0')" = 1 ]; do sleep 0.1; done
r shutdown save || true
while [ -S s ] && r ping >/dev/null 2>&1; do sleep 0.1; done
serve
until [ "$(r get kept 2>/dev/null)" = value ]; do sleep 0.1; done
r shutdown nosave || true
