#!/bin/sh
# Builds the peers that `tegmen-bench` compares with: all of them, or those named (openssl tinydtls wolfssl wolfssl-mcast
# dimpl liboscore californium gocoap libcoap aiocoap ndnd).
#
# Debian packages are installed when this runs as root; otherwise the line to type is printed. A peer that cannot be
# built is passed over, and the benchmark reports it as absent. Running it again costs nothing.
set -u

packages="build-essential pkg-config libssl-dev autoconf automake libtool libclang-dev cmake valgrind libcoap3-bin libcoap3-dev default-jdk-headless maven python3-venv"
bench=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$bench/../target}
mkdir -p "$target" && target=$(cd "$target" && pwd)/bench-peers
peers=${*:-openssl tinydtls wolfssl wolfssl-mcast dimpl liboscore californium gocoap libcoap aiocoap ndnd}

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || status=absent
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        apt-get install -y --no-install-recommends $missing || echo "not installed:$missing"
    else
        echo "missing, type: sudo apt-get install --no-install-recommends$missing"
    fi
fi

# The settings in peers/.cargo are found from there alone.
cd "$bench/peers" || exit 1
cargo fetch --locked || exit 1
failed=
for peer in $peers; do
    if [ "$peer" = californium ]; then
        # The same libraries as in interop/, whose pom.xml name them: one version for each of OSCORE, DTLS and the proxy.
        for kind in oscore dtls proxy; do
            case $kind in
                oscore) project=californium-oscore source=$bench/peers/californium/Server.java ;;
                dtls) project=californium source=$bench/peers/californium/SecureServer.java ;;
                *) project=californium-proxy source=$bench/../interop/peers/californium-proxy/Proxy.java ;;
            esac
            libraries=$target/californium/$kind
            mkdir -p "$libraries"
            (cd "$bench/../interop/peers/$project" \
                && mvn -q -B dependency:copy-dependencies "-DoutputDirectory=$libraries") \
                && javac -cp "$libraries/*" -d "$target/californium" "$source" \
                || failed="$failed $peer-$kind"
        done
        continue
    fi
    if [ "$peer" = gocoap ]; then
        mkdir -p "$target/release"
        (cd "$bench/peers/gocoap" && go build -o "$target/release/tegmen-bench-gocoap" .) || failed="$failed $peer"
        continue
    fi
    if [ "$peer" = ndnd ]; then
        # The version that interop/ uses.
        mkdir -p "$target/release"
        (cd "$bench/../interop/peers/ndnd" \
            && go build -mod=readonly -o "$target/release/ndnd" github.com/named-data/ndnd/cmd/ndnd) || failed="$failed $peer"
        continue
    fi
    if [ "$peer" = libcoap ]; then
        mkdir -p "$target/release"
        cc -O2 -Wall -Wextra -Werror -o "$target/release/tegmen-bench-libcoap" "$bench/peers/libcoap/client.c" \
            $(pkg-config --cflags --libs libcoap-3-openssl) || failed="$failed $peer"
        continue
    fi
    if [ "$peer" = aiocoap ]; then
        # The version that interop/ uses.
        { [ -x "$target/python/bin/python" ] || python3 -m venv "$target/python"; } \
            && "$target/python/bin/pip" install --quiet 'aiocoap[oscore]==0.4.17' || failed="$failed $peer"
        continue
    fi
    # One job: the C libraries are large and the machine may be small.
    cargo build --locked --release --jobs 1 --target-dir "$target" --package "tegmen-bench-$peer" || failed="$failed $peer"
done
[ -z "$failed" ] || echo "not built:$failed"
