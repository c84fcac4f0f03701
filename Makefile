# The two commands: `make run` shows the queries of this machine, `make test` runs every test.
.PHONY: run demo check fmt lab test test-long web bench dist dist-musl package install clean

# Where no MongoDB runs here, it replays a recording of a real one.
run:
	@scripts/install-prerequisites.sh build
	@scripts/run.sh

# The live view of a server with a small workload, which ends with it.
demo:
	@scripts/install-prerequisites.sh run
	@scripts/run.sh --demo

# Format, lint and the tests of the workspace: what to run before a commit.
check:
	@scripts/install-prerequisites.sh check
	@scripts/check.sh

# Formats all sources.
fmt:
	@scripts/lint.sh --fix

# One test of the whole program: make lab TEST=test_cli.py, or TEST="test_io.py -k oracle".
lab:
	@scripts/install-prerequisites.sh test
	cargo build --locked -p mongosonar
	@$(MAKE) --no-print-directory -C lab setup
	cd lab/tests && MONGOSONAR=$(CURDIR)/target/debug/mongosonar ../.venv/bin/python -m pytest -rs $(TEST)

# Everything, each part in a short form.
test:
	@scripts/install-prerequisites.sh test
	@scripts/test.sh

# The same with the release build and longer fuzzing.
test-long:
	@scripts/install-prerequisites.sh test
	@LONG=1 scripts/test.sh

# The web page of the reports: packages, types, format, tests, web/dist/report.html.
web: web/node_modules/.package-lock.json
	cd web && npm run check --silent && npm test --silent && npm run build --silent

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --silent
	@touch $@

# Measures, and writes docs/performance.md: make bench BENCH="logs file" replaces only their tables; LONG=1 takes more
# rounds.
bench:
	@scripts/install-prerequisites.sh bench
	@python3 -B bench/run.py $(BENCH)

# The release build: target/release/mongosonar.
dist:
	@scripts/install-prerequisites.sh build
	cargo build --release --locked -p mongosonar

# Into ~/.cargo/bin; `mongosonar doctor` then says how to run it without sudo.
install:
	cargo install --locked --path crates/mongosonar

# A static binary, which runs on every distribution: target/ARCH-unknown-linux-musl/release/mongosonar.
dist-musl:
	@scripts/dist-musl.sh

# What users install, docs/install.md: target/package/ gets .deb, .rpm, and the folder of the container image.
package:
	@scripts/install-prerequisites.sh package
	@scripts/package.sh

clean:
	cargo clean
	rm -rf lab/bin
