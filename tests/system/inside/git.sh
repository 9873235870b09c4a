# Commits, merges, clones over files, HTTP and git's own protocol, a push, worktrees.
# as: root dev
cd "$(mktemp -d)"
top=$PWD
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
port=$((20000 + $$ % 20000))
git init -q -b main r
cd r
for i in $(seq 100); do echo "$i" >"f$i"; done
git add .
git commit -qm one
git checkout -qb topic
echo changed >>f1
git commit -qam two
git checkout -q main
echo other >>f2
git commit -qam three
git merge -q -m merged topic
git gc -q
git fsck --strict
[ "$(git rev-list --count HEAD)" = 4 ]
git clone -q "$top/r" ../hardlinked
git clone -q "file://$top/r" ../packed
git clone -q --bare "$top/r" ../served.git
git -C ../served.git update-server-info
cd ..
python3 -m http.server $port --bind 127.0.0.1 2>/dev/null &
until curl -fsS http://127.0.0.1:$port/ >/dev/null 2>&1; do sleep 0.1; done
git clone -q http://localhost:$port/served.git by-http
kill %1
[ "$(cat by-http/f1 | tail -n 1)" = changed ]
git daemon --base-path="$top" --export-all --enable=receive-pack --listen=127.0.0.1 --port=$port --reuseaddr &
daemon=$!
until git ls-remote git://127.0.0.1:$port/served.git >/dev/null 2>&1; do sleep 0.1; done
git clone -q git://127.0.0.1:$port/served.git by-git
cd by-git
echo new >new
git add new
git commit -qm four
git push -q
[ "$(git -C ../served.git log -1 --format=%s main)" = four ]
git worktree add -q ../tree HEAD
[ -z "$(git -C ../tree status --short)" ]
kill $daemon
