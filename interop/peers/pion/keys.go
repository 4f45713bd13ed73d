package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/pion/dtls/v3"
)

// Who the other end is, where a suite was named and no certificate is shown.
var told string

// What an end proves itself with, and whom it believes.
type credentials struct {
	identity    string
	key         []byte
	certificate *tls.Certificate // in place of both
	ca          *x509.CertPool
	suite       dtls.CipherSuiteID
	name        string // of the server, if it is not localhost
	resumes     bool   // sessions with certificates
}

func fromKey(identity string, key []byte) *credentials {
	return &credentials{identity: identity, key: key, suite: dtls.TLS_PSK_WITH_AES_128_CCM_8}
}

// The words SUITE CA CERTIFICATE KEY.
func fromFiles(words []string) (*credentials, error) {
	certificate, err := tls.LoadX509KeyPair(words[2], words[3])
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(words[1])
	if err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate of a CA")
	}
	suite, err := suiteNamed(words[0])
	return &credentials{certificate: &certificate, ca: ca, suite: suite}, err
}

func suiteNamed(name string) (dtls.CipherSuiteID, error) {
	for _, suite := range dtls.CipherSuites() {
		if suite.Name == name {
			return dtls.CipherSuiteID(suite.ID), nil
		}
	}
	// It knows this one, too, and does not count it.
	if known := dtls.TLS_PSK_WITH_AES_128_CBC_SHA256; name == dtls.CipherSuiteName(known) {
		return known, nil
	}
	return 0, errors.New("no such suite: " + name)
}

func (own *credentials) server() []dtls.ServerOption {
	suite := dtls.WithCipherSuites(own.suite)
	if own.certificate != nil {
		wanted := dtls.RequireAndVerifyClientCert
		if own.resumes {
			wanted = dtls.NoClientCert // it keeps no session of a client with a certificate
		}
		return []dtls.ServerOption{suite, dtls.WithCertificates(*own.certificate), dtls.WithClientCAs(own.ca),
			dtls.WithClientAuth(wanted)}
	}
	find := func(asked []byte) ([]byte, error) {
		if string(asked) != own.identity {
			return nil, errors.New("no such identity")
		}
		return own.key, nil
	}
	return []dtls.ServerOption{suite, dtls.WithPSK(find)}
}

func (own *credentials) client() []dtls.ClientOption {
	suite := dtls.WithCipherSuites(own.suite)
	if own.certificate != nil {
		name := "localhost"
		if own.name != "" {
			name = own.name
		}
		return []dtls.ClientOption{suite, dtls.WithCertificates(*own.certificate), dtls.WithRootCAs(own.ca),
			dtls.WithServerName(name)}
	}
	give := func([]byte) ([]byte, error) { return own.key, nil }
	return []dtls.ClientOption{suite, dtls.WithPSK(give), dtls.WithPSKIdentityHint([]byte(own.identity))}
}

// Prints the suite, and who showed a certificate.
func printAgreed(conn *dtls.Conn) error {
	state, ok := conn.ConnectionState()
	if ok && told != "" {
		fmt.Println("suite", dtls.CipherSuiteName(state.CipherSuiteID))
		fmt.Println("peer", told)
	}
	if !ok || len(state.PeerCertificates) == 0 {
		return nil
	}
	shown, err := x509.ParseCertificate(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	fmt.Println("suite", dtls.CipherSuiteName(state.CipherSuiteID))
	fmt.Println("peer", shown.Subject.CommonName)
	return nil
}

func printSuites() {
	fmt.Print("suites")
	for _, suite := range dtls.CipherSuites() {
		fmt.Print(" ", suite.Name)
	}
	fmt.Println()
}
