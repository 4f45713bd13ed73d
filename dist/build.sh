#!/usr/bin/env bash
# Builds a static binary, and from it a Debian package and a container image, into target/dist/. Then checks all three.
#
#   dist/build.sh
#
# It needs dpkg-deb, strip, buildah and promtool. `./ci.sh dist` installs what is missing on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$(dpkg --print-architecture)
out=$PWD/target/dist
rm -rf "$out"
mkdir -p "$out"

# The C library is linked statically, too, so that the binary runs in a file system that has nothing else. Only the link
# differs from other builds, so cargo uses their libraries again.
built=$(cargo rustc --release --locked --quiet --message-format json-render-diagnostics -p tegmen-cli --bin tegmen \
    -- -C target-feature=+crt-static | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
strip -o "$out/tegmen" "$built"
# It is set after the build, because cargo builds libraries in C again when it changes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
tegmen=$out/tegmen
version=$("$tegmen" --version | cut -d ' ' -f 2)
if readelf -lW "$tegmen" | grep -q INTERP; then
    echo "$tegmen needs a dynamic linker: it is not static" >&2
    exit 1
fi

# The Debian package.
tree=$out/tree
put() { install -D -m "$1" /dev/stdin "$tree/$2"; }
install -D -m 755 "$tegmen" "$tree/usr/bin/tegmen"
install -d -m 750 "$tree/etc/tegmen"
put 644 etc/tegmen/tegmen.toml <dist/tegmen.toml
# Its first comment installs by hand what the package installs.
sed '2,/^\[Unit\]/{/^\[Unit\]/!d}; s|/usr/local/bin/|/usr/bin/|' dist/tegmen.service | put 644 usr/lib/systemd/system/tegmen.service
put 644 usr/lib/systemd/system/tegmen.socket <dist/tegmen.socket
put 644 usr/share/tegmen/alerts.yml <dist/alerts.yml
"$tegmen" man | gzip -9n | put 644 usr/share/man/man1/tegmen.1.gz
"$tegmen" completion bash | put 644 usr/share/bash-completion/completions/tegmen
cat LICENSE-MIT LICENSE-APACHE | put 644 usr/share/doc/tegmen/copyright
gzip -9n <CHANGELOG.md | put 644 usr/share/doc/tegmen/changelog.gz
put 644 DEBIAN/conffiles <<<"/etc/tegmen/tegmen.toml"
put 644 DEBIAN/control <<EOF
Package: tegmen
Version: $version
Architecture: $arch
Maintainer: Tegmen contributors <tegmen@localhost>
Installed-Size: $(du -k -s "$tree" | cut -f 1)
Section: net
Priority: optional
Suggests: prometheus
Description: CoAP over DTLS, OSCORE and access control for constrained devices
 Tegmen secures the messages of constrained devices. This package has the command
 tegmen with a server, a client and a laboratory, and units of systemd that run the
 server.
 .
 The server starts after its credentials exist:
 .
  tegmen keys new --file /etc/tegmen/credentials.toml --identity sensor-17
  systemctl enable --now tegmen
EOF
put 755 DEBIAN/postinst <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Datagrams wait in the socket while the server restarts.
    systemctl try-restart tegmen.service
fi
EOF
put 755 DEBIAN/prerm <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now tegmen.service tegmen.socket
fi
EOF
put 755 DEBIAN/postrm <<'EOF'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
# Credentials are not files of the package. They, and what clients wrote, remain.
EOF
deb=$out/tegmen_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$tree" "$deb" >/dev/null
rm -rf "$tree"

# The container image: the binary, and the directories in which it writes, for a user that has no other rights.
image=$out/tegmen-$version-$arch.oci.tar
b() { buildah --storage-driver vfs --root "$out/storage" --runroot "$out/run" "$@"; }
container=$(b from scratch)
b copy --quiet --chmod 755 "$container" "$tegmen" /tegmen >/dev/null
empty=$(mktemp -d)
for dir in /etc/tegmen /var/lib/tegmen /var/lib/tegmen-state; do
    b copy --quiet --chown 65532:65532 "$container" "$empty" $dir >/dev/null
done
rmdir "$empty"
b config --user 65532:65532 --port 5683/udp --port 5684/udp --workingdir /var/lib/tegmen \
    --volume /var/lib/tegmen --volume /var/lib/tegmen-state --stop-signal SIGTERM \
    --entrypoint '["/tegmen"]' --cmd 'serve --config /etc/tegmen/tegmen.toml' \
    --label org.opencontainers.image.title=tegmen --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.licenses=MIT OR Apache-2.0" "$container"
b commit --quiet --format oci --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci-archive:$image:tegmen:$version" >/dev/null

# The package and the image run, and accept the configuration that they come with.
unpacked=$out/unpacked
dpkg-deb -x "$deb" "$unpacked"
# The credentials are the administrator's.
"$unpacked/usr/bin/tegmen" keys new --file "$out/credentials.toml" --identity sensor-17 >/dev/null
mkdir -p "$unpacked/var/lib/tegmen" "$unpacked/var/lib/tegmen-state"
sed "s|/var/lib/|$unpacked/var/lib/|" "$unpacked/etc/tegmen/tegmen.toml" >"$out/tegmen.toml"
"$unpacked/usr/bin/tegmen" serve --config "$out/tegmen.toml" --credentials "$out/credentials.toml" --check-config >/dev/null
if [ "$(id -u)" = 0 ]; then
    # Only root enters another root directory without a service of containers.
    running=$(b from --quiet "oci-archive:$image")
    [ "$(b run --isolation chroot "$running" -- /tegmen --version)" = "tegmen $version" ]
fi
b rm --all >/dev/null
rm -rf "$unpacked" "$out/storage" "$out/run" "$out/tegmen.toml" "$out/credentials.toml"

promtool check rules dist/alerts.yml >/dev/null
promtool test rules dist/alerts.test.yml >/dev/null
for file in "$tegmen" "$deb" "$image"; do
    echo "$(stat -c %s "$file") bytes  ${file#"$PWD"/}"
done
