# Write-ahead logging (shared memory), locks between processes, integrity.
# as: root dev
cd "$(mktemp -d)"
[ "$(sqlite3 d 'pragma journal_mode=wal')" = wal ]
sqlite3 d 'create table t(a); with recursive c(x) as (values(1) union all select x+1 from c where x<10000) insert into t select x from c'
for i in 1 2 3 4; do
    for j in $(seq 25); do sqlite3 -cmd '.timeout 60000' d "insert into t values($i)"; done &
done
wait
[ "$(sqlite3 d 'select count(*) from t; pragma integrity_check' | tr '\n' ' ')" = "10100 ok " ]
sqlite3 d .dump | sqlite3 copy
[ "$(sqlite3 copy 'select sum(a) from t')" = 50005250 ]
