# The front door. Each target is one script in tools/; `make help` lists them.
PREFIX ?= /usr
DESTDIR ?=

.PHONY: help run stop check check-long lint format fuzz bench build install
help:           ## this list
	@sed -n 's/^\([a-z-]*\):[ a-z]*##/\1\t/p' Makefile
run:            ## install packages, build, start the daemon, run a first program in a sandbox
	@tools/run
stop:           ## stop the daemon that `make run` started (sandboxes live on)
	@tools/stop
check:          ## install packages, run unit, fuzz corpus and system tests; last line: N passed, N failed, N skipped
	@tools/check
check-long:     ## the tests that take long: kill rounds, 1,000 sandboxes
	@tools/check --long
lint:           ## static checks
	@tools/lint
format:         ## clang-format over all C files
	@tools/format
fuzz:           ## each fuzz target for SECONDS_EACH seconds (60)
	@tools/fuzz
bench:          ## benchmarks, written to bench/results.json
	@bench/run
build:          ## release build in build/
	@tools/install-deps build
	@tools/build
install: build  ## install below DESTDIR with PREFIX (/usr), a systemd unit and the users
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" tools/install
