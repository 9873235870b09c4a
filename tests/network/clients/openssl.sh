# The handshakes of each version, a session resumed, the name and the chain as the server has them.
cd "$(mktemp -d)"
ask() { printf 'GET /small HTTP/1.1\r\nHost: www.farm.test\r\nConnection: close\r\n\r\n' |
    openssl s_client -connect www.farm.test:443 -servername www.farm.test -verify_return_error -quiet "$@" 2>err; }
[ "$(ask -tls1_3 | tail -n 1)" = small ]
[ "$(ask -tls1_2 | tail -n 1)" = small ]
[ "$(openssl s_client -connect www.farm.test:443 -servername www.farm.test -alpn h2,http/1.1 </dev/null 2>/dev/null |
    grep -c 'ALPN protocol: h2\|Verify return code: 0')" -ge 2 ]
openssl s_client -connect www.farm.test:443 -servername www.farm.test -tls1_2 -sess_out session </dev/null >/dev/null 2>&1
openssl s_client -connect www.farm.test:443 -servername www.farm.test -tls1_2 -sess_in session </dev/null 2>/dev/null | grep -q '^Reused'
# A greeting in more than one record, and larger than one packet.
ask -split_send_frag 600 -max_send_frag 600 | tail -n 1 | grep -q small
alpn=$(python3 -c 'print(",".join("x%03d" % i + "y" * 200 for i in range(40)) + ",http/1.1")')
ask -alpn "$alpn" | tail -n 1 | grep -q small
