#!/bin/sh
# Draws new keys for vectors/x509 and issues its certificates with OpenSSL 3: certificates.txt. Run it in that folder.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$PWD/certificates.txt
: > "$out"
cd "$work"
touch index.txt
echo 1000 > serial
cat > ca.cnf <<'CNF'
[ca]
default_ca = default
[default]
database = index.txt
serial = serial
new_certs_dir = .
policy = any
unique_subject = no
email_in_dn = no
default_md = sha256
copy_extensions = none
preserve = yes
[any]
commonName = optional
organizationName = optional
[req]
distinguished_name = none
string_mask = utf8only
[none]
CNF

key() { # name, arguments of genpkey
    name=$1; shift
    openssl genpkey -quiet "$@" -out "$name.key" 2>/dev/null || openssl genpkey "$@" -out "$name.key" 2>/dev/null
}
P256="-algorithm EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:named_curve"

# issue NAME ISSUER SUBJECT EXTENSIONS [KEY-OF] [START] [END] [MORE]: ISSUER is NAME for a root
issue() {
    name=$1 issuer=$2 subject=$3 extensions=$4 owner=${5:-$1} start=${6:-20260101000000Z} end=${7:-99991231235959Z} more=${8:-}
    [ -e "$owner.key" ] || key "$owner" $P256
    openssl req -new -config ca.cnf -key "$owner.key" -subj "$subject" -out "$name.csr"
    printf "$extensions\n" > "$name.ext"
    signer="-cert $issuer.pem -keyfile $issuer.key"
    [ "$issuer" != "$name" ] || signer="-selfsign -keyfile $name.key"
    openssl ca -batch -notext -config ca.cnf $signer -in "$name.csr" -out "$name.pem" -extfile "$name.ext" \
        -startdate "$start" -enddate "$end" $more 2> log || { cat log; exit 1; }
    echo "$name $(openssl x509 -in "$name.pem" -outform DER | od -An -v -tx1 | tr -d ' \n')" >> "$out"
}

CA='basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign'
END='keyUsage=critical,digitalSignature'

issue root root '/CN=Works Root' "$CA"
issue sub root '/O=Works/CN=Sub' "$CA"
issue subsub sub '/O=Works/CN=Sub Sub' "$CA"
issue third subsub '/O=Works/CN=Third' "$CA"
issue other other '/CN=Other Root' "$CA"
# The name of the root with another key.
issue impostor impostor '/CN=Works Root' "$CA"

# End entities of the root and of a CA below it.
issue device root '/CN=01-23-45-67-89-AB-CD-EF' "$END\nextendedKeyUsage=clientAuth"
issue device_of_sub sub '/CN=01-23-45-67-89-AB-CD-EF' "$END\nextendedKeyUsage=clientAuth"
issue device_of_subsub subsub '/CN=device' "$END"
issue device_of_third third '/CN=device' "$END"
issue device_of_impostor impostor '/CN=device' "$END"
issue device_of_other other '/CN=device' "$END"
issue server root '/O=Works/CN=gateway' "$END\nextendedKeyUsage=serverAuth\nsubjectAltName=DNS:gateway.example,IP:192.0.2.7,DNS:*.wild.example"
issue server_critical root '/O=Works' "$END\nextendedKeyUsage=critical,serverAuth,clientAuth\nsubjectAltName=critical,DNS:Gateway.Example"
issue eui_in_alt_name root '/O=Works' "$END\nsubjectAltName=DNS:01-23-45-67-89-ab-cd-ef"
issue eui_not_leftmost root '/O=Works/CN=01-23-45-67-89-AB-CD-EF' "$END"
issue bare root '/CN=device' 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid'
issue any_purpose root '/CN=device' "$END\nextendedKeyUsage=anyExtendedKeyUsage"

# Times.
issue expired root '/CN=device' "$END" device 20250101000000Z 20251231235959Z
issue early root '/CN=device' "$END" device 20700101000000Z 20710101000000Z
issue sub_expired root '/O=Works/CN=Sub' "$CA" sub 20250101000000Z 20251231235959Z
issue sub_ends root '/O=Works/CN=Sub' "$CA" sub 20250101000000Z 20301231235959Z

# Usage.
issue agrees_only root '/CN=device' 'keyUsage=critical,keyAgreement'
issue ca_as_device root '/CN=device' "$CA,digitalSignature"
issue sub_no_ca root '/O=Works/CN=Sub' "$END,keyCertSign" sub
issue sub_says_no_ca root '/O=Works/CN=Sub' 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,keyCertSign' sub
issue sub_no_sign root '/O=Works/CN=Sub' 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,cRLSign' sub
issue sub_no_usage root '/O=Works/CN=Sub' 'basicConstraints=CA:TRUE' sub
issue sub_for_servers root '/O=Works/CN=Sub' "$CA\nextendedKeyUsage=serverAuth" sub
issue sub_len_0 root '/O=Works/CN=Sub' 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign' sub
issue sub_len_1 root '/O=Works/CN=Sub' 'basicConstraints=critical,CA:TRUE,pathlen:1\nkeyUsage=critical,keyCertSign' sub
# Sub has a new key, certified by its old one: self-issued.
key sub_new $P256
issue sub_rolled sub '/O=Works/CN=Sub' "$CA" sub_new
cp sub_new.key sub_rolled.key
issue device_of_rolled sub_rolled '/CN=device' "$END"

# Extensions.
issue constrained root '/O=Works/CN=Sub' "$CA\nnameConstraints=critical,permitted;DNS:example" sub
issue constrained_softly root '/O=Works/CN=Sub' "$CA\nnameConstraints=permitted;DNS:example" sub
issue critical_unknown root '/CN=device' "$END\n1.2.3.4=critical,ASN1:UTF8String:what" device
issue unknown root '/CN=device' "$END\n1.2.3.4=ASN1:UTF8String:what\ncertificatePolicies=1.2.3.4\ncrlDistributionPoints=URI:http://crl.example/1" device
issue critical_policies root '/CN=device' "$END\ncertificatePolicies=critical,1.2.3.4" device

# Keys and signatures that a mote does not take.
key rsa -algorithm RSA -pkeyopt rsa_keygen_bits:2048
key p384 -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -pkeyopt ec_param_enc:named_curve
key secp256k1 -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1 -pkeyopt ec_param_enc:named_curve
key ed25519 -algorithm ED25519
for kind in rsa p384 secp256k1 ed25519; do
    issue "device_$kind" root '/CN=device' "$END" $kind
done
openssl ec -in device.key -conv_form compressed -out compressed.key 2> /dev/null
issue device_compressed root '/CN=device' "$END" compressed
issue device_sha384 root '/CN=device' "$END" device 20260101000000Z 99991231235959Z '-md sha384'
cp rsa.key root_rsa.key
issue root_rsa root_rsa "/CN=RSA Root" "$CA"
issue device_of_rsa root_rsa "/CN=device" "$END" device
