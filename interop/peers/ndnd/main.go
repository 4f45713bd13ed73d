// A peer on the library of ndnd: "packets FILE" encodes each packet that a line of FILE describes, and verifies that of the line.
// "schemas FILE" decides about the pairs of names of each trust schema of FILE, and "verify FILE CERT" verifies a packet by a certificate.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	enc "github.com/named-data/ndnd/std/encoding"
	"github.com/named-data/ndnd/std/ndn"
	spec "github.com/named-data/ndnd/std/ndn/spec_2022"
	"github.com/named-data/ndnd/std/security"
	"github.com/named-data/ndnd/std/security/signer"
	"github.com/named-data/ndnd/std/security/trust_schema"
	"github.com/named-data/ndnd/std/types/optional"
)

// A component: a type, and a value in hexadecimal digits.
type component struct {
	kind  uint64
	value []byte
}

func (c *component) UnmarshalJSON(text []byte) error {
	var parts []any
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	kind, isNumber := parts[0].(float64)
	digits, isText := parts[1].(string)
	if !isNumber || !isText {
		return errors.New("no component")
	}
	value, err := hex.DecodeString(digits)
	c.kind, c.value = uint64(kind), value
	return err
}

func (c *component) encode() enc.Component {
	return enc.NewBytesComponent(enc.TLNum(c.kind), c.value)
}

func nameOf(components []component) enc.Name {
	name := enc.Name{}
	for _, part := range components {
		name = append(name, part.encode())
	}
	return name
}

type keys struct {
	Locator []component `json:"locator"`
	Secret  string      `json:"secret"`
	signers map[int]ndn.Signer
	hmac    []byte
	ecdsa   *ecdsa.PublicKey
	ed25519 ed25519.PublicKey
}

// A signer by HMAC that names its key.
type named struct {
	ndn.Signer
	locator enc.Name
}

func (n named) KeyLocator() enc.Name { return n.locator }

func (k *keys) prepare() {
	secret, err := hex.DecodeString(k.Secret)
	must(err)
	locator := nameOf(k.Locator)
	private := &ecdsa.PrivateKey{D: new(big.Int).SetBytes(secret)}
	private.Curve = elliptic.P256()
	private.X, private.Y = private.Curve.ScalarBaseMult(secret)
	edwards := ed25519.NewKeyFromSeed(secret)
	k.hmac, k.ecdsa, k.ed25519 = secret, &private.PublicKey, edwards.Public().(ed25519.PublicKey)
	k.signers = map[int]ndn.Signer{
		0: signer.NewSha256Signer(),
		3: signer.NewEccSigner(locator, private),
		4: named{signer.NewHmacSigner(secret), locator},
		5: signer.NewEd25519Signer(locator, edwards),
	}
}

func (k *keys) verify(covered enc.Wire, signature ndn.Signature) bool {
	switch signature.SigType() {
	case ndn.SignatureDigestSha256:
		return signer.ValidateSha256(covered, signature)
	case ndn.SignatureHmacWithSha256:
		return signer.ValidateHmac(covered, signature, k.hmac)
	case ndn.SignatureSha256WithEcdsa:
		digest := sha256.Sum256(covered.Join())
		return ecdsa.VerifyASN1(k.ecdsa, digest[:], signature.SigValue())
	case ndn.SignatureEd25519:
		return ed25519.Verify(k.ed25519, covered.Join(), signature.SigValue())
	}
	return false
}

type packet struct {
	Kind        string        `json:"kind"`
	Name        []component   `json:"name"`
	Signature   *int          `json:"signature"`
	Wire        string        `json:"wire"`
	ContentType *uint64       `json:"content_type"`
	Freshness   *uint64       `json:"freshness"`
	FinalBlock  *component    `json:"final_block"`
	Content     *string       `json:"content"`
	CanBePrefix bool          `json:"can_be_prefix"`
	MustBeFresh bool          `json:"must_be_fresh"`
	Nonce       *uint32       `json:"nonce"`
	Lifetime    *uint64       `json:"lifetime"`
	HopLimit    *byte         `json:"hop_limit"`
	Hint        [][]component `json:"hint"`
	Parameters  *string       `json:"parameters"`
	SigNonce    *uint64       `json:"sig_nonce"`
	SigTime     *uint64       `json:"sig_time"`
	SigSequence *uint64       `json:"sig_sequence"`
}

func milliseconds(number *uint64) optional.Optional[time.Duration] {
	if number == nil {
		return optional.None[time.Duration]()
	}
	return optional.Some(time.Duration(*number) * time.Millisecond)
}

func wireOf(digits *string) enc.Wire {
	if digits == nil {
		return nil
	}
	value, err := hex.DecodeString(*digits)
	must(err)
	return enc.Wire{value}
}

func (p *packet) signer(k *keys) ndn.Signer {
	if p.Signature == nil {
		return nil
	}
	return k.signers[*p.Signature]
}

func (p *packet) encode(k *keys) enc.Wire {
	name := nameOf(p.Name)
	if p.Kind == "data" {
		config := ndn.DataConfig{Freshness: milliseconds(p.Freshness)}
		if p.ContentType != nil {
			config.ContentType = optional.Some(ndn.ContentType(*p.ContentType))
		}
		if p.FinalBlock != nil {
			config.FinalBlockID = optional.Some(p.FinalBlock.encode())
		}
		data, err := spec.Spec{}.MakeData(name, &config, wireOf(p.Content), p.signer(k))
		must(err)
		return data.Wire
	}
	config := ndn.InterestConfig{
		CanBePrefix: p.CanBePrefix,
		MustBeFresh: p.MustBeFresh,
		Lifetime:    milliseconds(p.Lifetime),
		HopLimit:    p.HopLimit,
		SigTime:     milliseconds(p.SigTime),
	}
	for _, hint := range p.Hint {
		config.ForwardingHint = append(config.ForwardingHint, nameOf(hint))
	}
	if p.Nonce != nil {
		config.Nonce = optional.Some(*p.Nonce)
	}
	if p.SigNonce != nil {
		config.SigNonce = enc.Nat(*p.SigNonce).Bytes()
	}
	if p.SigSequence != nil {
		config.SigSeqNo = optional.Some(*p.SigSequence)
	}
	interest, err := spec.Spec{}.MakeInterest(name, &config, wireOf(p.Parameters), p.signer(k))
	must(err)
	return interest.Wire
}

// True if the packet has a valid digest, which the library checks, and a valid signature.
func (p *packet) verify(k *keys) bool {
	wire, err := hex.DecodeString(p.Wire)
	must(err)
	view := enc.NewBufferView(wire)
	if p.Kind == "data" {
		data, covered, err := spec.Spec{}.ReadData(view)
		return err == nil && k.verify(covered, data.Signature())
	}
	interest, covered, err := spec.Spec{}.ReadInterest(view)
	return err == nil && (p.Signature == nil || k.verify(covered, interest.Signature()))
}

func packets(path string) {
	file, err := os.Open(path)
	must(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var known *keys
	for lines.Scan() {
		if known == nil {
			known = &keys{}
			must(json.Unmarshal(lines.Bytes(), known))
			known.prepare()
			continue
		}
		var described packet
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		must(decoder.Decode(&described))
		verdict := "wrong"
		if described.verify(known) {
			verdict = "valid"
		}
		fmt.Fprintf(out, "%x %s\n", described.encode(known).Join(), verdict)
	}
	must(lines.Err())
}

type drawn struct {
	Model string      `json:"model"`
	Pairs [][2]string `json:"pairs"`
}

func schemas(path string) {
	file, err := os.Open(path)
	must(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<22)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var described drawn
		must(json.Unmarshal(lines.Bytes(), &described))
		model, err := hex.DecodeString(described.Model)
		must(err)
		schema, err := trust_schema.NewLvsSchema(model)
		must(err)
		fmt.Fprint(out, described.Model, " ")
		for _, pair := range described.Pairs {
			packet, err := enc.NameFromStr(pair[0])
			must(err)
			key, err := enc.NameFromStr(pair[1])
			must(err)
			decision := "0"
			if schema.Check(packet, key) {
				decision = "1"
			}
			fmt.Fprint(out, decision)
		}
		fmt.Fprintln(out)
	}
	must(lines.Err())
}

// The packet of a file, and its signed portion.
func read(path string) (ndn.Data, enc.Wire) {
	content, err := os.ReadFile(path)
	must(err)
	if content[0] != 6 {
		content = security.PemDecode(content)[0]
	}
	data, covered, err := spec.Spec{}.ReadData(enc.NewBufferView(content))
	must(err)
	return data, covered
}

func verify(path string, certificate string) {
	data, covered := read(path)
	issuer, _ := read(certificate)
	valid, err := signer.ValidateData(data, covered, issuer)
	if valid && err == nil && !security.CertIsExpired(issuer) {
		fmt.Println("valid")
	} else {
		fmt.Println("wrong")
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "packets":
		packets(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "schemas":
		schemas(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "verify":
		verify(os.Args[2], os.Args[3])
	default:
		must(errors.New("usage: ndnd packets FILE, ndnd schemas FILE or ndnd verify FILE CERT"))
	}
}
