# A cluster, its server, load from several clients, a crash and the recovery from it.
# as: root
pg_dropcluster --stop 15 main 2>/dev/null || true
pg_createcluster 15 main -- --data-checksums --auth-local=trust
pg_ctlcluster 15 main start
as() { runuser -u postgres -- "$@"; }
[ "$(as psql -Atc 'select 6 * 7')" = 42 ]
as createdb load
as pgbench -q -i -s 1 load
as pgbench -n -c 4 -j 2 -t 50 load
[ "$(as psql load -Atc 'select count(*) from pgbench_history')" = 200 ]
as psql load -qc "set max_parallel_workers_per_gather = 2; set min_parallel_table_scan_size = 0; select count(distinct bid) from pgbench_accounts" >/dev/null
as psql load -qc "listen x; notify x, 'y'" >/dev/null
head -n 1 /var/lib/postgresql/15/main/postmaster.pid | xargs kill -QUIT
while pg_ctlcluster 15 main status >/dev/null; do sleep 0.1; done
pg_ctlcluster 15 main start
[ "$(as psql load -Atc 'select sum(delta) = (select sum(tbalance) from pgbench_tellers) from pgbench_history')" = t ]
as pg_dump load | grep -q 'CREATE TABLE public.pgbench_history'
pg_ctlcluster 15 main stop
runuser -u postgres -- /usr/lib/postgresql/15/bin/pg_checksums --check -D /var/lib/postgresql/15/main | grep -q 'Bad checksums: *0'
service postgresql start
service postgresql stop
