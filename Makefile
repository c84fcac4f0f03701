# The two commands: `make run` shows the queries of this machine, `make test` runs every test.
.PHONY: run test test-long lint bench install dist-musl clean

run:
	@scripts/install-prerequisites.sh run
	@scripts/run.sh

test:
	@scripts/install-prerequisites.sh test
	@scripts/test.sh

# The same with the release build and longer fuzzing.
test-long:
	@scripts/install-prerequisites.sh test
	@LONG=1 scripts/test.sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

bench:
	@scripts/install-prerequisites.sh test
	@for bench in bench/*.sh; do echo "== $$bench"; $$bench || exit 1; done

# Into ~/.cargo/bin; `mongosonar doctor` then says how to run it without sudo.
install:
	cargo install --locked --path crates/mongosonar

# A static binary, which runs on every distribution: target/ARCH-unknown-linux-musl/release/mongosonar.
dist-musl:
	@scripts/dist-musl.sh

clean:
	cargo clean
	rm -rf lab/bin
