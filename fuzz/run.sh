#!/bin/sh
# Builds every fuzz target, runs each for SECONDS from its committed corpus, and prints the number of its runs.
#
#   fuzz/run.sh SECONDS [TARGET...]
#   fuzz/run.sh merge [TARGET...]     adds new inputs that reach more code to the committed corpus
#
# Needs a stable Rust (https://rustup.rs) and a C++ compiler: `sudo apt-get install g++` on Debian. New inputs are in
# fuzz/target/corpus. The first inputs of the committed corpus are those that `cargo run --example seeds` writes.
set -eu
cd "$(dirname "$0")"
seconds=${1:?"usage: fuzz/run.sh SECONDS|merge [TARGET...]"}
shift
all="coap_message coap_exchange coap_response formats informative dtls_records dtls_cbc dtls_hello dtls_server dtls_client dtls_resumed slip_ip lowpan ndn oscore group_oscore axiom_member axiom_controller delegated_device edhoc x509 x509_motes ace policy"
targets=${*:-$all}

command -v c++ >/dev/null || {
    echo "no C++ compiler: type  sudo apt-get install g++" >&2
    exit 2
}
# The coverage that libFuzzer steers by, as cargo-fuzz asks for it. No sanitizer: there is no unsafe code to watch.
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR="$target_dir"
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
-Ccodegen-units=1 --cfg fuzzing" cargo build --release --bins --target "$host"

# Runs or merges one target. Prints a line, and on a finding the end of its log.
fuzz() {
    target=$1
    binary="$target_dir/$host/release/$target"
    found="$target_dir/corpus/$target"
    log="$target_dir/$target.log"
    mkdir -p "$found" "artifacts/$target" "corpus/$target"
    if [ "$seconds" = merge ]; then
        before=$(ls "corpus/$target" | wc -l)
        "$binary" -merge=1 -max_len=2048 "corpus/$target" "$found" >"$log" 2>&1
        rmdir "artifacts/$target" 2>/dev/null || true
        echo "$target: $(ls "corpus/$target" | wc -l) inputs, $before before"
        return
    fi
    if "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "$found" "corpus/$target" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        covered=$(sed -n 's/^#.* cov: \([0-9]*\).*/\1/p' "$log" | tail -1)
        echo "$target: $runs executions, $covered edges"
        rmdir "artifacts/$target" 2>/dev/null || true
    else
        tail -40 "$log" >&2
        artifact=$(sed -n 's/.*Test unit written to \(.*\)$/\1/p' "$log" | tail -1)
        echo "$target: FAILED. To see it again:  cd fuzz && $binary ${artifact:-}" >&2
        return 1
    fi
}

# As many targets at a time as there are cores.
cores=$(nproc)
failed="" running=""
wait_for_one() {
    set -- $running
    wait "${1%%:*}" || failed="$failed ${1#*:}"
    shift
    running=$*
}
for target in $targets; do
    fuzz "$target" &
    running="$running $!:$target"
    [ "$(echo "$running" | wc -w)" -lt "$cores" ] || wait_for_one
done
while [ -n "$running" ]; do
    wait_for_one
done
[ -z "$failed" ] || {
    echo "findings in:$failed" >&2
    exit 1
}
