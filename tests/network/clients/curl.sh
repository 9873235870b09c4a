# HTTP/1.1 and 2, with TLS and without; large bodies both ways, resumed and in part; one connection for many requests.
cd "$(mktemp -d)"
web=https://www.farm.test
want=$(curl -fsS $web/big.sha256)
sum() { sha256sum "$1" | cut -c1-64; }
[ "$(curl -fsS --http2 -o two -w '%{http_version} %{http_code} %{ssl_verify_result}' $web/big)" = "2 200 0" ]
[ "$(sum two)" = "$want" ]
[ "$(curl -fsS --http1.1 -o one -w '%{http_version}' $web/big)" = 1.1 ]
[ "$(sum one)" = "$want" ]
curl -fsS -o plain http://www.farm.test/big
[ "$(sum plain)" = "$want" ]
curl -fsS -o odd https://www.farm.test:8443/big
[ "$(sum odd)" = "$want" ]
# Resumed, and in part.
head -c 12345678 two >resumed
curl -fsS -C - -o resumed $web/big
[ "$(sum resumed)" = "$want" ]
curl -fsS -r 1000000-1999999 $web/big | cmp - <(tail -c +1000001 two | head -c 1000000)
[ "$(curl -fsS -r 0-3,8-9 $web/big | grep -ac Content-Range)" = 2 ]
# Up: with a length, in chunks, after a question whether to go on.
for version in --http2 --http1.1; do
    [ "$(curl -fsS $version -T two $web/app/upload)" = "20971521 $want" ]
    [ "$(curl -fsS $version -T - $web/app/upload <two)" = "20971521 $want" ]
    [ "$(curl -fsS $version -H 'Expect: 100-continue' --data-binary @two $web/app/upload)" = "20971521 $want" ]
done
[ "$(curl -fsS -T two http://www.farm.test/app/upload)" = "20971521 $want" ]
[ "$(curl -fsS -T - http://www.farm.test/app/upload <two)" = "20971521 $want" ]
# One connection, many requests; many at once.
[ "$(curl -fsS -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects}' $web/small $web/small $web/small)" = 100 ]
[ "$(curl -fsS -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects}' http://www.farm.test/small http://www.farm.test/small \
    http://www.farm.test/small)" = 100 ]
curl -fsS --parallel --parallel-max 20 -o 'p#1' "$web/small?[1-60]"
[ "$(cat p[0-9]* | sort -u)" = small ]
[ "$(ls p[0-9]* | wc -l)" = 60 ]
# The methods, a redirect, an offer of HTTP/2 without TLS, a form, compression asked for.
[ "$(curl -fsSL $web/moved)" = small ]
[ "$(curl -fsSLI -o /dev/null -w '%{http_code} %{num_redirects}' $web/moved)" = "200 1" ]
[ "$(curl -fsS --http2 http://www.farm.test/small)" = small ]
for method in DELETE PATCH OPTIONS POST; do
    curl -fsS -X $method $web/app/facts | grep -q "\"method\": \"$method\""
done
[ "$(curl -fsS -F file=@two $web/app/upload | cut -c1-6)" = 209717 ]
curl -fsS --compressed -A 'agent/1' -u user:password -b cookie=1 $web/app/facts | grep -q 'cookie=1'
[ "$(curl -sS -o /dev/null -w '%{http_code}' $web/nothing)" = 404 ]
# Addresses of either kind alone.
[ "$(curl -4fsS $web/small && curl -6fsS $web/small && curl -fsS https://four.farm.test/small &&
    curl -fsS https://six.farm.test/small)" = "$(yes small | head -n 4)" ]
