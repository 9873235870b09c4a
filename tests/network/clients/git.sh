# Clones and pushes over HTTPS, HTTP, git's own protocol and ssh; large ones.
cd "$(mktemp -d)"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com GIT_TERMINAL_PROMPT=0
export GIT_SSH_COMMAND="ssh -i /opt/clients/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
n=0
for url in https://git.farm.test/r.git http://git.farm.test/r.git git://git.farm.test/r.git ssh://root@git.farm.test:2222/srv/git/r.git; do
    n=$((n + 1))
    git ls-remote -q $url | grep -q refs/heads/main
    git clone -q $url c$n
    git -C c$n fsck --strict
    [ "$(wc -c <c$n/blob)" = 6000001 ]
    head -c 3000000 /dev/urandom >c$n/new
    git -C c$n add .
    git -C c$n commit -qm "from $n"
    git -C c$n push -q origin HEAD:refs/heads/from-$n-$RANDOM$RANDOM
    [ "$(git -C c$n status -sb --porcelain | wc -l)" = 1 ]
done
git clone -q --depth 1 https://git.farm.test/r.git shallow
git -C shallow fetch -q
[ "$(ssh -i /opt/clients/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p 2222 root@git.farm.test \
    'cat | sha256sum' <c1/new)" = "$(sha256sum <c1/new)" ]
scp -q -P 2222 -i /opt/clients/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@git.farm.test:/srv/www/big big
[ "$(sha256sum big | cut -c1-64)" = "$(curl -fsS https://www.farm.test/big.sha256)" ]
