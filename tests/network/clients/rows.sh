# PostgreSQL and Redis by their own protocols: on ports that are not theirs, large results, a wait for a message.
cd "$(mktemp -d)"
db="host=db.farm.test port=15432 user=postgres dbname=postgres"
[ "$(psql -XAtq "$db sslmode=disable" -c 'select count(*) from generate_series(1, 100000)')" = 100000 ]
[ "$(psql -XAtq "$db sslmode=verify-full sslrootcert=/etc/ssl/certs/ca-certificates.crt" -c 'select ssl from pg_stat_ssl where pid = pg_backend_pid()')" = t ]
[ "$(psql -XAtq "$db sslmode=disable" -c "select repeat('x', 20000000)" | wc -c)" = 20000001 ]
table=t$RANDOM$RANDOM
psql -XAtq "$db sslmode=disable" -c "create table $table (n int, v text)"
seq 300000 | sed 's/$/\tvalue/' | psql -XAtq "$db sslmode=disable" -c "copy $table from stdin"
[ "$(psql -XAtq "$db sslmode=disable" -c "copy $table to stdout" | wc -l)" = 300000 ]
psql -XAtq "$db sslmode=disable" -c "drop table $table"
redis() { redis-cli -h db.farm.test -p 16379 "$@"; }
[ "$(redis ping)" = PONG ]
head -c 5000000 /dev/zero | tr '\0' y | redis -x set "$table" >/dev/null
[ "$(redis strlen "$table")" = 5000000 ]
[ "$(redis get "$table" | wc -c)" = 5000001 ]
seq 20000 | sed "s/.*/INCR n$table/" | redis --pipe | grep -q 'errors: 0, replies: 20000'
[ "$(redis get "n$table")" = 20000 ]
timeout 20 redis-cli -h db.farm.test -p 16379 blpop "q$table" 15 >popped &
sleep 1
redis lpush "q$table" word >/dev/null
wait $!
[ "$(tail -n 1 popped)" = word ]
redis del "$table" "n$table" >/dev/null
