#!/usr/bin/env bash
# The test command of Tegmen. Without arguments it runs the whole gate; with names of steps it runs those alone.
#
#   ./ci.sh                 everything below but the long runs, under 45 minutes on 2 cores
#   ./ci.sh format lint     single steps
#   ./ci.sh house           counts of the structure, which may only fall; also: house --list, house --update
#   ./ci.sh layers          circles among the modules of a crate; also: layers --update
#   ./ci.sh words           idioms in prose, which may only become fewer; also: words --list FOLDER, words --update, words --draw SEED [COUNT]
#   ./ci.sh prose BASE      compares the code with that of the commit BASE: a rewrite of prose must change no token; not of the gate
#   ./ci.sh docs            the documentation of the crates, the book in target/book, and every link
#   ./ci.sh readme          the console blocks of the README and of docs/ as printed
#   ./ci.sh conformance     the rules of each RFC that has a table: how many are done, partly done, missing, not applicable
#   ./ci.sh faults          every test, and a line for each class of fault that others had: whether ours survives it
#   ./ci.sh mutants SEED    thirty rules drawn by seed, whose tests must fail for a mutant of their code; also: mutants SEED ROWS; not of the gate
#   ./ci.sh red COMMIT...   the tests of a commit on the sources before it, where they must fail; also: red NUMBER of a fault, red all
#   ./ci.sh timing          records with MAC-then-encrypt, premaster secrets of RSA, keys of P-256: no instruction, no address depends on what is secret
#   ./ci.sh instructions    instructions of a record, a handshake and a request, beside those of an earlier commit
#   ./ci.sh decisions       instructions of a decision under a policy of 10,000 rules, not of the gate
#   ./ci.sh crash           power cuts, restores, copies and double starts: no nonce twice, no replay
#   ./ci.sh power           ten thousand power cuts under SQLite: no acknowledged write lost, and each sync is needed
#   ./ci.sh cluster         replicas and etcd, killed and cut off under load: nothing lost, nothing twice; needs root, not of the gate
#   ./ci.sh targets         the core on other processors; a check for ARM, musl, Windows, macOS and the oldest compiler; not of the gate
#   ./ci.sh miri            the peer table, the timer wheel and the portable cipher under Miri; not of the gate
#   ./ci.sh api             the public items of each library are those in api/; also: api --update; not of the gate
#   ./ci.sh semver COMMIT   the changes of public items since a commit that the version number does not announce; not of the gate
#   ./ci.sh sbom            what the command and each library contain, as CycloneDX in target/sbom/; not of the gate
#   ./ci.sh motes           the examples for motes: smoltcp, embassy-net and embedded-nal-async, under QEMU and on this host; not of the gate
#   ./ci.sh groups          a group of twenty processes, with losses, evictions and a killed controller; needs root, not of the gate
#   ./ci.sh dist            a static binary, a Debian package, a container image, the alert rules
#   ./ci.sh long            one hour of fuzzing and 100,000 simulated seeds; the corpus grows
#   ./ci.sh bench           the benchmarks beside every peer, results in bench/results/
#
# What a step needs is installed by package name where this runs as root on Debian; elsewhere the line to type is
# printed and the step fails.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
mkdir -p target

# need PACKAGE...: Debian packages.
need() {
    local missing=() package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        # One step at a time: steps in the background need packages, too.
        (
            flock 9
            apt-get update -qq || true
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
        ) 9>target/apt.lock && return
    fi
    echo "missing packages; type: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
}

# need_component NAME: a part of the Rust toolchain.
need_component() {
    rustup component list --installed 2>/dev/null | grep -q "^$1" && return
    rustup component add "$1" >/dev/null 2>&1 && return
    echo "missing; type: rustup component add $1" >&2
    return 1
}

# need_target NAME: the libraries of the Rust toolchain for a target.
need_target() {
    rustup target list --installed 2>/dev/null | grep -qx "$1" && return
    rustup target add "$1" >/dev/null 2>&1 && return
    echo "missing; type: rustup target add $1" >&2
    return 1
}

# need_toolchain NAME [COMPONENT...]: another version of the compiler, with components.
need_toolchain() {
    local name=$1
    shift
    rustc "+$name" --version >/dev/null 2>&1 ||
        rustup toolchain install "$name" --profile minimal --no-self-update >/dev/null 2>&1 ||
        { echo "missing; type: rustup toolchain install $name --profile minimal" >&2; return 1; }
    [ $# = 0 ] || rustup component add --toolchain "$name" "$@" >/dev/null 2>&1 ||
        { echo "missing; type: rustup component add --toolchain $name $*" >&2; return 1; }
}

# need_program NAME VERSION: a program of this name from crates.io, which cargo compiles.
need_program() {
    cargo install --list | grep -qx "$1 v$2:" && return
    cargo install --locked --quiet "$1" --version "$2" && return
    echo "missing; type: cargo install --locked $1 --version $2" >&2
    return 1
}

# The program that makes the book of docs/.
mdbook=0.5.4
# The program that decodes the logs of the examples for motes.
defmt_print=1.2.0
# The program that lists public items.
public_api=0.52.0
# The compiler that describes public items in the format that this program reads.
nightly=nightly-2026-05-20

# The program that finds incompatible changes of public items.
semver_checks=0.51.0
# The program that lists dependencies with their licenses.
cyclonedx=0.5.9

# The libraries that need neither an operating system nor C, and those for hosts: together those that are published.
core=(tegmen-base tegmen-coap tegmen-oscore tegmen tegmen-lowpan tegmen-x509 tegmen-tickets tegmen-protokey tegmen-flash
    tegmen-delegation tegmen-ndn tegmen-proxy tegmen-edhoc)
hosted=(tegmen-ndn-host tegmen-accel tegmen-store tegmen-control tegmen-trust tegmen-host tegmen-admin)

# each CRATE...: the option -p for each crate.
each() { printf -- '-p %s ' "$@"; }

# Options of every unoptimized build of the workspace. The whole gate adds keys in a TPM, so lint and test do the work of the
# step tpm. It also compiles with Clippy's driver, which is rustc with further lints, so that one build checks and tests.
unoptimized=()

# tool NAME [ARGUMENT...]: a program of the project's own, built with the features that the tests of the workspace have, so that
# cargo builds the libraries of all steps once. That takes more than the program's own package, and an example among the targets.
tool() {
    local name=$1
    shift
    cargo build --workspace "${unoptimized[@]}" --example "$name" --locked --quiet
    CARGO_MANIFEST_DIR=$PWD/tegmen-testbed "${CARGO_TARGET_DIR:-target}/debug/examples/$name" "$@"
}

# The programs of the examples, which tegmen-testbed/tests/examples.rs runs: `cargo test --examples` builds them without their main
# function. By name, because two packages have further examples of one name. And `house`: with it cargo builds the libraries of
# procedural macros as for the other steps, and so no library a second time.
examples() {
    local file names=(--example house)
    for file in tegmen{,-host,-control}/examples/*.rs; do
        [ "$file" = tegmen/examples/timing.rs ] || names+=(--example "$(basename "$file" .rs)")
    done
    cargo build --workspace "${unoptimized[@]}" "${names[@]}" --locked --quiet
}

# What later steps of the whole gate run, built in the background.
ahead() {
    local cargo="nice -n 5 cargo"
    $cargo build --release --locked -p tegmen-cli --bins
    $cargo build --release --locked -p tegmen-cli --example instructions
    $cargo test --release --locked -p tegmen --no-run --test pair --test simultaneous --test exchanges --test nodes
}

step_format() {
    need_component rustfmt
    cargo fmt --check
    (cd firmware && cargo fmt --check)
    (cd fuzz && cargo fmt --check)
    (cd examples/motes && cargo fmt --check)
}

step_lint() {
    need_component clippy
    # In the whole gate the build of the tests has the same lints.
    [ "$whole" = no ] || { cargo test --workspace "${unoptimized[@]}" --lib --bins --examples --tests --no-run --locked; return; }
    cargo clippy --workspace "${unoptimized[@]}" --all-targets --locked -- -D warnings
}

# The structure in numbers that may only fall: tegmen-testbed/house.toml. A few seconds after its first build.
step_house() {
    tool house house "$@"
}

# No circle among the top-level modules of a crate, nor among siblings in a folder: children may use their parent. A few seconds.
step_layers() {
    tool house layers "$@"
}

# Idioms in comments, messages and Markdown, with plain words for them: tegmen-testbed/words.toml. A few seconds.
step_words() {
    tool house words "$@"
}

# Not of the gate: a second for each ten files.
step_prose() {
    tool house prose "$@"
}

# The documentation of the crates, then the pages in docs/ as a book in target/book, and every link of the Markdown files and of the
# book. mdbook is installed once, with 222 s of CPU; the book and its links take 2 s then, and the rest is the build of the crates.
step_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace "${unoptimized[@]}" --no-deps --locked --quiet
    [ "$(mdbook --version 2>/dev/null)" = "mdbook v$mdbook" ] ||
        cargo install --locked --quiet mdbook --version "$mdbook" --no-default-features
    rm -rf target/book
    mdbook build
    # Links to files that are no pages of the book lead into the clone.
    sed -i -E 's|href="\.\./|href="../../|g; s|(href="\.\./\.\./[^"]*)\.html([#"])|\1.md\2|g' target/book/*.html
    cargo test --workspace "${unoptimized[@]}" --locked --quiet --test links -- --include-ignored
}

# Licences, versions and sources of dependencies. Not of the gate, because installing it takes minutes; advisories, whose list
# comes from elsewhere: cargo deny check advisories
step_deny() {
    command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
    cargo deny check licenses bans sources
}

# Every test once. The step faults does that and prints its table; among the tests are those of the steps crash and power, and in
# the whole gate those of tpm.
step_test() {
    # Tests are skipped where these are missing.
    need chromium qemu-system-arm gcc-arm-none-eabi rustc-web cargo-web rust-web-src tshark
    step_faults
    # With optimization functions are inlined, and the backtrace lists them all the same.
    cargo test --release --locked --quiet -p tegmen-cli --test backtrace
    cargo test --doc --workspace "${unoptimized[@]}" --locked --quiet
}

# The crates that can be published, as their packages: all are packed, and the core is built from its package. Without the
# network.
step_package() {
    local options=(--offline --locked --allow-dirty --quiet)
    # Cargo does not unpack a package again if one of the same version lies there from an earlier run.
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/tegmen-*
    # shellcheck disable=SC2046
    cargo package "${options[@]}" --no-verify $(each "${core[@]}" "${hosted[@]}")
    cargo package "${options[@]}" -p tegmen-base -p tegmen-coap -p tegmen-oscore -p tegmen
}

# A static binary, a Debian package and a container image, and the alert rules. In the gate it links the optimized libraries
# that the step up built, which takes a minute.
step_dist() {
    need binutils libc6-dev dpkg buildah prometheus
    dist/build.sh
}

# Two endpoints, a fake clock, a network that loses, repeats, reorders and spoils.
step_seeds() {
    TEGMEN_SEEDS=${TEGMEN_SEEDS:-10000} cargo test --release --locked -p tegmen --test pair --test simultaneous --test exchanges --test nodes \
        -- --nocapture
}

# The core without std, without any feature, on a target that has neither an operating system nor a heap.
step_nostd() {
    need rustc-web cargo-web rust-web-src
    # shellcheck disable=SC2046
    PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/nostd \
        /usr/bin/cargo build $(each "${core[@]}") --no-default-features --release -Zbuild-std=core --target thumbv7m-none-eabi --locked
    PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/nostd \
        /usr/bin/cargo build -p tegmen --release -Zbuild-std=core --target thumbv7m-none-eabi --locked
}

# The main job, and the paper's bytes, as a user runs them. A first handshake that retransmits is one that waits a second: none
# of thirty may. Less than a minute for all thirty.
step_up() {
    # A build without keys in a TPM must give no warning: in the whole gate the step lint does not see it.
    cargo build --release --locked 2>&1 | tee target/up.log
    ! grep -q '^warning' target/up.log || return 1
    cargo run --release --locked --quiet -- up --once 20 --port 0
    local n
    rm -f target/up.json.new
    for n in $(seq 30); do
        cargo run --release --locked --quiet -- up --once 20 --period 1 --port 0 --json | tail -n 1 >>target/up.json.new
    done
    mv target/up.json.new target/up.json
    [ "$(grep -c '"retransmitted":0[,}]' target/up.json)" = 30 ] || { grep -v '"retransmitted":0[,}]' target/up.json >&2; return 1; }
    echo "up: no handshake of 30 retransmitted a flight"
    cargo run --release --locked --quiet -- lab run blink-bytes --json >target/blink-bytes.json
    echo "blink-bytes: every row of the paper equal"
}

# The console blocks of the README and of the pages in docs/, as a reader types them: 155 s, and the time of a build of the command.
step_readme() {
    need curl procps libcoap3-bin openssl
    tool readme
}

# The laboratory: the simulator beside ns-3, the Blink paper whole, the paper on content objects,
# the delegation paper and its baselines, the papers on two-way authentication and on groups, and deployments from their files.
step_lab() {
    mkdir -p target/lab
    cargo run --release --locked --quiet -- lab run ns3-agreement --json >target/lab/ns3-agreement.json
    for plan in blink objects-bytes objects-delay objects-creation objects-discovery objects-cache handshakes delegation two-way two-way-architecture axiom; do
        cargo run --release --locked --quiet -- lab run $plan --json >target/lab/$plan.json
    done
    cargo run --release --locked --quiet -- lab plan examples/greenhouse.toml
    cargo run --release --locked --quiet -- lab plan examples/delegated.toml
    # A thousand nodes: computed each time, at least 1,000 times faster than real time.
    rm -rf target/lab/thousand
    cargo run --release --locked --quiet -- lab run examples/thousand.toml --runs target/lab/thousand |
        tee target/lab/thousand.txt
    grep -oE 'at least [0-9]+ times' target/lab/thousand.txt | awk '{ fast = $3 >= 1000 } END { exit !fast }'
    # The report as a browser draws it. In the whole gate the step test ran this before.
    [ "$whole" = no ] || return 0
    need chromium
    cargo test --workspace "${unoptimized[@]}" --locked --quiet --test browser
}

step_firmware() {
    need rustc-web cargo-web rust-web-src gcc-arm-none-eabi binutils-arm-none-eabi qemu-system-arm gcc libc6-dev
    cargo run --release --locked --quiet -- lab footprint
    # In the whole gate the step test ran this before.
    [ "$whole" = no ] || return 0
    cargo test --workspace "${unoptimized[@]}" --locked --quiet --test cosim -- --nocapture
}

# The unit tests and the vectors of the core run on a processor of 32 bits and on one with the other order of bytes, both
# under QEMU. The other targets are checked without a link: 64-bit ARM and musl with the whole workspace, Windows with the core
# and the libraries for hosts, macOS with the core, whose crates have no code in C. All crates are also checked with the oldest compiler.
# Windows has neither `tegmen-ndn-host`, which uses Unix sockets, nor thus `tegmen-cli`.
step_targets() {
    need gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user
    need gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-mingw-w64-x86-64 musl-tools
    local target oldest
    export CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_LINKER=arm-linux-gnueabihf-gcc
    export CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER="qemu-arm -L /usr/arm-linux-gnueabihf"
    export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc
    export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER="qemu-s390x -L /usr/s390x-linux-gnu"
    # shellcheck disable=SC2046
    for target in armv7-unknown-linux-gnueabihf s390x-unknown-linux-gnu; do
        need_target $target
        PROPTEST_CASES=${PROPTEST_CASES:-16} cargo test --locked --quiet --target $target $(each "${core[@]}" tegmen-accel) --lib --test vectors --test agreement
    done
    # The crate `cc` finds the C compiler by the name of the target.
    for target in aarch64-unknown-linux-gnu x86_64-unknown-linux-musl; do
        need_target $target
        cargo check --locked --quiet --target $target --workspace
    done
    need_target x86_64-pc-windows-gnu
    # shellcheck disable=SC2046
    cargo check --locked --quiet --target x86_64-pc-windows-gnu $(each "${core[@]}" "${hosted[@]:1}")
    need_target aarch64-apple-darwin
    # shellcheck disable=SC2046
    cargo check --locked --quiet --target aarch64-apple-darwin $(each "${core[@]}")
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    need_toolchain "$oldest"
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest cargo "+$oldest" check --locked --quiet --workspace
}

# Miri runs the unit tests of the peer table and of the timer wheel, and tests of the cipher for processors without AES instructions.
# It reports undefined behaviour. Miri has no AES instructions itself, so `seal` and `open` use that cipher, too. Not of the gate,
# because Miri is slow: a property of the cipher has 2 cases, one of the timer wheel has 8, and the test that inserts 30,000 peers is skipped.
# About ten minutes of CPU with the build.
step_miri() {
    need_toolchain $nightly miri rust-src
    export MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}
    PROPTEST_CASES=${PROPTEST_CASES:-2} cargo +$nightly miri test --locked --quiet -p tegmen-accel --test agreement
    PROPTEST_CASES=${PROPTEST_CASES:-8} cargo +$nightly miri test --locked --quiet -p tegmen-host --lib -- slab::tests:: wheel::tests:: --skip a_new_peer_in_clear_costs
}

# The public items of each published library, with all its features.
step_api() {
    need_toolchain $nightly
    need_program cargo-public-api $public_api
    local crate out=target/api is_same=yes
    mkdir -p $out api
    for crate in "${core[@]}" "${hosted[@]}"; do
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/nightly cargo +$nightly public-api -sss --all-features -p "$crate" >"$out/$crate.txt"
        if [ "${1:-}" = --update ]; then
            cp "$out/$crate.txt" "api/$crate.txt"
        else
            diff -u "api/$crate.txt" "$out/$crate.txt" || is_same=no
        fi
    done
    [ $is_same = yes ] || { echo "the public items differ from those in api/; to keep the change, type: ./ci.sh api --update" >&2; return 1; }
}

# Compares the public items of the published libraries with those of a commit. Not of the gate: the program takes minutes to
# compile, and each library needs two descriptions.
step_semver() {
    [ $# -gt 0 ] || { echo "name a commit: ./ci.sh semver COMMIT" >&2; return 2; }
    need_program cargo-semver-checks $semver_checks
    # shellcheck disable=SC2046
    cargo semver-checks $(each "${core[@]}" "${hosted[@]}") --baseline-rev "$1"
}

# A bill of materials for the command and for each library, with the dependencies that the command has on this system.
step_sbom() {
    need_program cargo-cyclonedx $cyclonedx
    local crate name=tegmen-sbom
    cargo cyclonedx --quiet --format json --spec-version 1.5 --features tegmen-cli/tpm --override-filename $name
    mkdir -p target/sbom
    for crate in "${core[@]}" "${hosted[@]}" tegmen-cli; do
        mv "$crate/$name.json" "target/sbom/$crate.cdx.json"
    done
    # The program writes one for each member of the workspace.
    find . -path ./target -prune -o -name $name.json -exec rm {} +
    ls target/sbom
}

# The examples for motes, under QEMU and on this host, against `tegmen serve`. Not of the gate, because the first run installs
# defmt-print and compiles other dependencies than the rest, which takes minutes.
step_motes() {
    need qemu-system-arm
    need_target thumbv7m-none-eabi
    [ "$(defmt-print --version 2>/dev/null | head -n 1)" = "defmt-print $defmt_print" ] ||
        cargo install --locked --quiet defmt-print --version "$defmt_print"
    cargo build --release --locked --quiet -p tegmen-cli
    local target
    target=$(realpath "${CARGO_TARGET_DIR:-target}")
    (cd examples/motes && TEGMEN=$target/release/tegmen CARGO_TARGET_DIR=$target/motes \
        cargo test --locked --quiet -p mote-check -- --nocapture --test-threads 1)
}

step_interop() {
    need openssl gnutls-bin libcoap3-bin curl tshark qemu-system-arm rustc-web cargo-web rust-web-src gcc-arm-none-eabi
    need gcc make cmake libclang-dev autoconf automake libtool libmbedtls-dev python3-venv
    command -v go >/dev/null || need golang-go
    command -v javac >/dev/null || need default-jdk-headless
    command -v mvn >/dev/null || need maven
    cargo build --release --locked --quiet -p tegmen-cli
    # The harness waits for its peers nearly all of the time, so it is the unoptimized one that the step test built.
    # With an example among the targets it has their features, as in tool.
    cargo build --workspace "${unoptimized[@]}" --bin tegmen-interop --example house --locked --quiet
    "${CARGO_TARGET_DIR:-target}/debug/tegmen-interop" --tegmen "${CARGO_TARGET_DIR:-target}/release/tegmen"
}

step_fuzz() {
    [ -x fuzz/run.sh ] || { echo "fuzz/run.sh is missing" >&2; return 1; }
    fuzz/run.sh "${TEGMEN_FUZZ_SECONDS:-10}"
}

# Every test of the workspace, and a line for each fault that other implementations had, by the tests that name it; writes
# target/faults.json.
step_faults() {
    examples
    tool faults "${unoptimized[@]}"
}

# The tables of conformance/: their counts, and that the functions and tests that they name exist. The step test runs it, too.
step_conformance() {
    cargo test --workspace "${unoptimized[@]}" --locked --quiet --test conformance -- --nocapture --test-threads 1
}

# Not of the gate: seconds to minutes for each mutant.
step_mutants() {
    [ $# -gt 0 ] || { echo "name a seed: ./ci.sh mutants SEED" >&2; return 2; }
    if ! command -v cargo-mutants >/dev/null && ! cargo install --locked --quiet cargo-mutants; then
        echo "missing; type: cargo install --locked cargo-mutants" >&2
        return 1
    fi
    tool mutants "$@"
}

# Not of the gate: one to three minutes for each commit.
step_red() {
    [ $# -gt 0 ] || { echo "name commits, numbers of faults.toml, or all: ./ci.sh red COMMIT..." >&2; return 2; }
    tool faults "$@"
}

# Compares every instruction and address: opening records with MAC-then-encrypt and decrypted premaster secrets must reveal
# nothing of padding and MAC, and an operation on secp256r1 nothing of the private key. With optimization across crates, as users
# have it.
step_timing() {
    need valgrind
    CARGO_PROFILE_RELEASE_LTO=thin cargo run --release --locked --quiet -p tegmen --example timing --features cbc,curves,p256
}

# Instructions of a record, a PSK handshake and a GET at a server, which may exceed those of an earlier commit by two percent:
# bench/instructions.json. Three runs gave the same numbers to the last digit. Without optimization across crates, so that the whole
# gate uses its libraries again. Ten seconds.
step_instructions() {
    need valgrind
    CARGO_PROFILE_RELEASE_LTO=off cargo run --release --locked --quiet -p tegmen-cli --example instructions
}

# Instructions of a decision under a policy of 10,000 rules. Not of the gate, because valgrind takes three minutes, nearly all of
# them to read the policies.
step_decisions() {
    need valgrind
    cargo run --release --locked --quiet -p tegmen-cli --example decisions
}

# Keys in a TPM: a TPM in software, and the only parts of the workspace that need the TPM2 software stack. Not a step of the gate
# of its own: its lint and test build with keys in a TPM.
step_tpm() {
    need swtpm libtss2-dev pkg-config openssl
    # The other tests are as in the step lint.
    cargo clippy --workspace --lib --bins --examples --test tpm --locked --features tegmen-cli/tpm -- -D warnings
    # The software stack would report every refusal that a test asks for.
    TSS2_LOG=all+NONE cargo test --workspace --locked --quiet --features tegmen-cli/tpm --test tpm
}

# Ten thousand power cuts, restores, copies and double starts; writes target/crash.json. The step test runs it, too.
step_crash() {
    cargo test --locked --quiet -p tegmen-host --test crash -- --nocapture
}

# Ten thousand power cuts under SQLite, and each sync left out; writes target/power.json. A minute; the step test runs it, too.
step_power() {
    cargo test --locked --quiet -p tegmen-store --test power -- --nocapture
}

# may_unshare STEP: fails with the line to type if namespaces of the network cannot be made.
may_unshare() {
    [ "$(id -u)" = 0 ] || { echo "namespaces of the network need root; type: sudo ./ci.sh $1" >&2; return 1; }
    unshare --net true || {
        echo "this root may not make namespaces of the network; in a container of Docker, type this on its host:" \
            "docker run --privileged --rm -v \"\$PWD:/tegmen\" -w /tegmen IMAGE ./ci.sh $1" >&2
        return 1
    }
}

# The driver of etcd, with processes of etcd that the test starts. Then three members of etcd and two access control servers in
# namespaces of the network, which only root can make: kills and partitions under load; writes target/cluster.json. Not of the
# gate: the tests wait until leases of seconds end. Four minutes after the build.
step_cluster() {
    need etcd-server iproute2 curl
    may_unshare cluster || return 1
    cargo test --locked --quiet -p tegmen-store --features etcd --test etcd -- --include-ignored --test-threads 1
    cargo test --locked --quiet -p tegmen-cli --test cluster -- --include-ignored --nocapture
}

# A controller, twenty lamps and two senders in namespaces of the network, which only root can make: members join and are evicted, a
# fifth of the datagrams is lost, and the controller is killed; writes target/groups.json. Not of the gate: members wait for
# answers that were lost. Four minutes after the build.
step_groups() {
    need iproute2 iptables curl
    may_unshare groups || return 1
    cargo test --locked --quiet -p tegmen-cli --test field -- --include-ignored --nocapture
}

# An hour of fuzzing in all, 100,000 seeds, and what fuzzing found new added to the committed corpus.
step_long() {
    TEGMEN_SEEDS=${TEGMEN_SEEDS:-100000} step_seeds
    TEGMEN_SEEDS=${TEGMEN_SEEDS:-100000} TEGMEN_DEPTH=6 cargo test --release --locked -p tegmen-control --test group -- --nocapture
    TEGMEN_FUZZ_SECONDS=${TEGMEN_FUZZ_SECONDS:-360} step_fuzz
    fuzz/run.sh merge
}

step_bench() {
    bench/setup.sh
    cargo build --release --locked --quiet -p tegmen-cli -p tegmen-bench
    mkdir -p bench/results
    local what
    for what in dtls coap oscore sessions control group delegation proxy ndn; do
        # Its ratio moves by a fifth from pass to pass.
        local passes=9
        [ "$what" != oscore ] || passes=61
        # A row that misses its bound is in the results.
        cargo run --release --locked --quiet -p tegmen-bench -- "$what" --passes $passes --json >"bench/results/$what.json" \
            || [[ " oscore group delegation proxy ndn " = *" $what "* ]]
        echo "bench/results/$what.json"
    done
}

gate=(format lint house layers words docs package test timing fuzz seeds nostd up readme lab interop firmware instructions dist)
# Steps that the whole gate runs in the background beside those that follow: two use one core for minutes, and the cells of interop
# wait for timers of peers most of the time. By name: the process, and the second of its start.
declare -A beside=([timing]="" [fuzz]="" [interop]="") begun
whole=no
if [ $# = 0 ]; then
    whole=yes
    set -- "${gate[@]}"
fi
# The steps with words of their own, and these with options.
if [[ " red mutants prose semver " = *" $1 "* ]] || [[ " house layers words api " = *" $1 "* && ${2:-} = --* ]]; then
    step=$1
    shift
    "step_$step" "$@"
    exit
fi
if [ "$whole" = yes ]; then
    # Three steps compile the same libraries in C, and a second build finds them here.
    need ccache swtpm libtss2-dev pkg-config openssl
    unoptimized=(--features tegmen-cli/tpm --config 'build.rustc-workspace-wrapper="clippy-driver"')
    # As `cargo clippy -- -D warnings` sets it.
    export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
    # Optimization across crates takes four minutes of CPU for each program. A package outside the gate has it, and so does a benchmark.
    export CARGO_PROFILE_RELEASE_LTO=off
    # The software stack would report every refusal that a test asks for.
    export TSS2_LOG=all+NONE
    export PATH=/usr/lib/ccache:$PATH CCACHE_DIR=$PWD/target/ccache
    # Files for a later, incremental build would take time and ten gigabytes.
    export CARGO_INCREMENTAL=0
    # Optimized programs are built while the first steps leave a core idle. Their own steps build them again if this fails.
    set -m
    ahead >target/ahead.log 2>&1 &
    set +m
    background=$!
    trap 'for process in $background ${beside[*]}; do kill -- -$process 2>/dev/null || true; done' EXIT
fi
took=()
# finished NAME BEGIN: keeps the time of a step for the end.
finished() {
    took+=("$(printf '%-12s %3d min %02d s' "$1" $(((SECONDS - $2) / 60)) $(((SECONDS - $2) % 60)))")
}
for name in "$@"; do
    declare -F "step_$name" >/dev/null || { echo "no step $name; there are: ${gate[*]} faults crash power tpm cluster groups motes targets miri api decisions conformance mutants prose red deny long bench" >&2; exit 2; }
    if [ $whole = yes ] && [ -v "beside[$name]" ]; then
        echo "== $name begins in the background"
        begun[$name]=$SECONDS
        set -m
        (
            set -e
            # The steps in the foreground wait for nothing else.
            [ "$name" = interop ] || renice -n 10 $BASHPID >/dev/null
            "step_$name"
        ) >"target/$name.log" 2>&1 &
        set +m
        beside[$name]=$!
        continue
    fi
    echo "== $name"
    begin=$SECONDS
    # In a subshell with -e of its own, so that the first failing line fails the step; behind || or in a condition the
    # shell would ignore -e.
    set +e
    (set -e; "step_$name")
    result=$?
    set -e
    [ $result = 0 ] || { echo "== $name failed after $((SECONDS - begin)) s" >&2; exit 1; }
    finished "$name" $begin
done
for name in "${!begun[@]}"; do
    echo "== $name"
    result=0
    wait "${beside[$name]}" || result=$?
    cat "target/$name.log"
    [ $result = 0 ] || { echo "== $name failed" >&2; exit 1; }
    finished "$name" "${begun[$name]}"
done
echo "== all passed"
printf '%s\n' "${took[@]}"
