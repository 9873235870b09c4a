// net/http of Go, with its own resolver: HTTP/2 and 1.1, large bodies both ways, many requests at once.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

const web = "https://www.farm.test"

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func get(c *http.Client, url string) ([]byte, string) {
	r, err := c.Get(url)
	check(err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	check(err)
	if r.StatusCode != 200 {
		panic(r.Status)
	}
	return b, r.Proto
}

func use(c *http.Client, base, proto string) {
	want, got := get(c, base+"/big.sha256")
	if got != proto {
		panic(got + " is not " + proto)
	}
	big, _ := get(c, base+"/big")
	if fmt.Sprintf("%x", sha256.Sum256(big)) != strings.TrimSpace(string(want)) {
		panic("other bytes")
	}
	up := big[:9000001]
	told := fmt.Sprintf("%d %x\n", len(up), sha256.Sum256(up))
	// The second hides its length: it goes in chunks.
	for _, body := range []io.Reader{bytes.NewReader(up), io.MultiReader(bytes.NewReader(up))} {
		r, err := c.Post(base+"/app/upload", "application/octet-stream", body)
		check(err)
		b, err := io.ReadAll(r.Body)
		check(err)
		r.Body.Close()
		if string(b) != told {
			panic(string(b))
		}
	}
	var all sync.WaitGroup
	for i := 0; i < 60; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if b, _ := get(c, base+"/app/slow"); string(b) != "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n" {
				panic(string(b))
			}
		}()
	}
	all.Wait()
}

func main() {
	use(http.DefaultClient, web, "HTTP/2.0")
	one := &http.Client{Transport: &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
	use(one, web, "HTTP/1.1")
	use(one, "http://www.farm.test", "HTTP/1.1")
	addresses, err := (&net.Resolver{PreferGo: true}).LookupHost(context.Background(), "www.farm.test")
	check(err)
	if len(addresses) != 2 {
		panic(strings.Join(addresses, " "))
	}
	_, err = (&net.Resolver{PreferGo: true}).LookupHost(context.Background(), "www.evil.test")
	if e, ok := err.(*net.DNSError); !ok || !e.IsNotFound {
		panic(fmt.Sprint(err))
	}
}
