# What no rule allows: every client says so, soon. $1: rules by "name", or by "cidr" with a resolver that answers everything.
cd "$(mktemp -d)"
reset='reset|closed|empty reply|connect to'
quick() {
    local start=$SECONDS
    if timeout 60 "$@" >out 2>&1; then
        echo "it worked: $*" >&2
        exit 1
    fi
    [ $((SECONDS - start)) -lt 20 ] || { echo "$((SECONDS - start)) s: $*" >&2; exit 1; }
}
# The words where there is no such name, and where the address is not allowed: a reset, which may come while the client still connects.
by=$1
says() {
    local words=$1
    [ "$by" = name ] || words=$2
    grep -qiE "$words" out || { cat out >&2; exit 1; }
}
quick curl -sS https://evil.test/
says 'could not resolve' "$reset"
quick curl -sS https://evil.test/ --resolve evil.test:443:198.97.190.53
says 'alert|denied' "$reset"
quick curl -sS -6 https://evil.test/ --resolve 'evil.test:443:[2606:2800:220:2::bad]'
says 'alert|denied' "$reset"
quick curl -sS -f http://evil.test/ --resolve evil.test:80:198.97.190.53
says 403 "$reset"
if [ "$by" = name ]; then
    curl -sS http://evil.test/ --resolve evil.test:80:198.97.190.53 | grep -q 'policy of this sandbox does not allow evil.test'
fi
quick curl -sS https://198.97.190.53/
says 'alert|denied' "$reset"
quick wget -q --tries=1 https://evil.test/
quick git clone -q https://evil.test/r.git
says 'could not resolve' "$reset"
quick git clone -q git://evil.test/r.git
quick ssh -o BatchMode=yes evil.test
says 'could not resolve' "$reset"
quick ssh -o BatchMode=yes 198.97.190.53
says "$reset" "$reset"
quick python3 -m pip install -q --target t --retries 0 --index-url https://evil.test/simple thing
says 'no matching distribution' 'no matching distribution'
quick node -e 'fetch("https://evil.test/")'
says ENOTFOUND 'ECONNRESET|other side closed|socket'
quick python3 -c 'import requests; requests.get("https://evil.test/")'
says 'name or service not known' "$reset"
quick psql -h evil.test -p 15432 -U postgres -c 'select 1'
says 'name or service not known' "$reset"
quick psql -h 198.97.190.53 -p 15432 -U postgres -c 'select 1'
says "$reset" "$reset"
quick redis-cli -h 198.97.190.53 -p 16379 ping
quick openssl s_client -connect 198.97.190.53:443 -servername evil.test -verify_return_error
# What is neither TCP nor the resolver's.
quick python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("198.97.190.53", 9999)); s.send(b"x"); s.recv(1)'
says 'not permitted|refused' 'not permitted|refused'
