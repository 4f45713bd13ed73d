// pion/dtls as one end of a DTLS session, spoken to in lines; the words are those of interop/src/talker.rs.
//
//	tegmen-interop-pion client|server ADDRESS IDENTITY KEY [connection_id BYTES]     the key in hexadecimal
//	tegmen-interop-pion client|server ADDRESS IDENTITY KEY resume id
//	tegmen-interop-pion client|server ADDRESS psk SUITE IDENTITY KEY
//	tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY          files in PEM
//	tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY resume id NAME  of the server
//	tegmen-interop-pion version|suites
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pion/dtls/v3"
)

// The session that lines go to: the last that was established; and its id, which one that is resumed has from before.
var (
	current *dtls.Conn
	lastID  []byte
	lock    sync.Mutex
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "version":
		info, _ := debug.ReadBuildInfo()
		for _, module := range info.Deps {
			if module.Path == "github.com/pion/dtls/v3" {
				fmt.Println("version", strings.TrimPrefix(module.Version, "v"))
			}
		}
	case len(os.Args) == 2 && os.Args[1] == "suites":
		printSuites()
	case len(os.Args) == 7 && os.Args[3] == "psk":
		key, err := hex.DecodeString(os.Args[6])
		end(err)
		own := fromKey(os.Args[5], key)
		own.suite, err = suiteNamed(os.Args[4])
		end(err)
		told = own.identity
		end(talk(os.Args[1], os.Args[2], own, nil))
	case len(os.Args) == 5, len(os.Args) == 7 && (os.Args[5] == "connection_id" || os.Args[5] == "resume"):
		key, err := hex.DecodeString(os.Args[4])
		end(err)
		end(talk(os.Args[1], os.Args[2], fromKey(os.Args[3], key), os.Args[5:]))
	case len(os.Args) == 8 && os.Args[3] == "x509":
		own, err := fromFiles(os.Args[4:])
		end(err)
		end(talk(os.Args[1], os.Args[2], own, nil))
	case len(os.Args) == 11 && os.Args[3] == "x509" && os.Args[8] == "resume":
		own, err := fromFiles(os.Args[4:])
		end(err)
		own.resumes = true
		if os.Args[1] == "client" {
			own.name = os.Args[10]
		}
		end(talk(os.Args[1], os.Args[2], own, os.Args[8:10]))
	default:
		fmt.Fprintln(os.Stderr, "usage: tegmen-interop-pion client|server ADDRESS IDENTITY KEY [connection_id BYTES]")
		fmt.Fprintln(os.Stderr, "       tegmen-interop-pion client|server ADDRESS IDENTITY KEY resume id")
		fmt.Fprintln(os.Stderr, "       tegmen-interop-pion client|server ADDRESS psk SUITE IDENTITY KEY")
		fmt.Fprintln(os.Stderr, "       tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY")
		fmt.Fprintln(os.Stderr, "       tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY resume id NAME")
		os.Exit(2)
	}
}

func end(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func talk(role, address string, own *credentials, words []string) error {
	udp, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	var more []dtls.Option
	if len(words) == 2 && words[0] == "connection_id" {
		size, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		more = append(more, dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(size)))
	} else if len(words) == 2 {
		more = append(more, dtls.WithSessionStore(&store{name: own.name}))
	}
	if role == "server" {
		options := own.server()
		for _, option := range more {
			options = append(options, option)
		}
		listener, err := dtls.ListenWithOptions("udp", udp, options...)
		if err != nil {
			return err
		}
		fmt.Println("listening")
		go accept(listener)
		return send(nil)
	}
	options := own.client()
	for _, option := range more {
		options = append(options, option)
	}
	dial := func(udp *net.UDPAddr) error {
		conn, err := dtls.DialWithOptions("udp", udp, options...)
		if err != nil {
			return err
		}
		return session(conn)
	}
	if err := dial(udp); err != nil {
		return err
	}
	return send(func(other string) error {
		if other != "" {
			if udp, err = net.ResolveUDPAddr("udp", other); err != nil {
				return err
			}
		}
		return dial(udp)
	})
}

func accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Println("failed", err)
			return
		}
		go func() {
			if err := session(conn.(*dtls.Conn)); err != nil {
				fmt.Println("failed", err)
			}
		}()
	}
}

// Ends the handshake and then prints what comes.
func session(conn *dtls.Conn) error {
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := conn.HandshakeContext(patience); err != nil {
		conn.Close()
		return err
	}
	state, _ := conn.ConnectionState()
	lock.Lock()
	current = conn
	resumed := len(state.SessionID) > 0 && bytes.Equal(state.SessionID, lastID)
	lastID = bytes.Clone(state.SessionID)
	lock.Unlock()
	if err := printAgreed(conn); err != nil {
		return err
	}
	if resumed {
		fmt.Println("resumed")
	}
	fmt.Println("established")
	go func() {
		record := make([]byte, 2048)
		for {
			n, err := conn.Read(record)
			if err != nil {
				fmt.Println("failed", err)
				return
			}
			fmt.Println("received", hex.EncodeToString(record[:n]))
		}
	}()
	return nil
}

// Sends each line, and closes the session at the end of them. A client dials again where a line says so, and at another address
// where the line has one.
func send(dial func(other string) error) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if other, is := strings.CutPrefix(lines.Text(), "again"); is && dial != nil {
			if err := current.Close(); err != nil {
				return err
			}
			if err := dial(strings.TrimSpace(other)); err != nil {
				return err
			}
			continue
		}
		record, err := hex.DecodeString(lines.Text())
		if err != nil {
			return err
		}
		lock.Lock()
		conn := current
		lock.Unlock()
		if conn == nil {
			return errors.New("nobody is there to send to")
		}
		if _, err := conn.Write(record); err != nil {
			return err
		}
	}
	lock.Lock()
	defer lock.Unlock()
	if current != nil {
		return current.Close()
	}
	return nil
}
