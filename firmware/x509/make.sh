#!/bin/sh
# Issues new certificates that the image dtls_x509 shows and trusts. Needs OpenSSL 3. Run it in this folder.
#
#   path.bin           a certificate_list: that of the device, and that of the CA below the anchor
#   anchor-name.der    the subject of the anchor
#   anchor-key.der     its SubjectPublicKeyInfo
set -eu
out=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
request() { openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"; }
sign() { # name, issuer, extensions
    printf "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n$3\n" > ext
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -set_serial "0x10$4" -days 1000000 -extfile ext -out "$1.pem" 2> /dev/null
}
# The device's private key is the number whose 32 bytes are all 1, as in the image.
{ printf '\060\061\002\001\001\004\040'; printf '\001%.0s' $(seq 32); printf '\240\012\006\010\052\206\110\316\075\003\001\007'; } > device.der
openssl ec -inform DER -in device.der -out device.key 2> /dev/null
key root; key ca
openssl req -x509 -key root.key -subj '/CN=Works Root' -days 1000000 -out root.pem
request ca '/CN=Works CA'
sign ca root 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign' 01
request device '/CN=01-23-45-67-89-AB-CD-EF'
sign device ca 'keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth' 02
: > "$out/path.bin"
for name in device ca; do
    openssl x509 -in $name.pem -outform DER -out $name.der
    printf "\\000\\$(printf %03o $(($(wc -c < $name.der) / 256)))\\$(printf %03o $(($(wc -c < $name.der) % 256)))" >> "$out/path.bin"
    cat $name.der >> "$out/path.bin"
done
openssl pkey -in root.key -pubout -outform DER -out "$out/anchor-key.der"
offset=$(openssl asn1parse -in ca.pem | awk -F: '/d=2/ && /SEQUENCE/ { n++; if (n == 2) { print $1 + 0; exit } }')
openssl asn1parse -in ca.pem -strparse "$offset" -noout -out "$out/anchor-name.der"
