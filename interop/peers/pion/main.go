// pion/dtls as one end of a DTLS session, spoken to in lines; the words are those of interop/src/talker.rs.
//
//	tegmen-interop-pion client|server ADDRESS IDENTITY KEY [connection_id BYTES]     the key in hexadecimal
//	tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY          files in PEM
//	tegmen-interop-pion version|suites
package main

import (
	"bufio"
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

// The session that lines go to: the last that was established.
var (
	current *dtls.Conn
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
	case len(os.Args) == 5, len(os.Args) == 7 && os.Args[5] == "connection_id":
		key, err := hex.DecodeString(os.Args[4])
		end(err)
		end(talk(os.Args[1], os.Args[2], fromKey(os.Args[3], key), os.Args[5:]))
	case len(os.Args) == 8 && os.Args[3] == "x509":
		own, err := fromFiles(os.Args[4:])
		end(err)
		end(talk(os.Args[1], os.Args[2], own, nil))
	default:
		fmt.Fprintln(os.Stderr, "usage: tegmen-interop-pion client|server ADDRESS IDENTITY KEY [connection_id BYTES]")
		fmt.Fprintln(os.Stderr, "       tegmen-interop-pion client|server ADDRESS x509 SUITE CA CERTIFICATE KEY")
		os.Exit(2)
	}
}

func end(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func talk(role, address string, own *credentials, more []string) error {
	udp, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	var size int
	if len(more) == 2 {
		if size, err = strconv.Atoi(more[1]); err != nil {
			return err
		}
	}
	if role == "server" {
		options := own.server()
		if size > 0 {
			options = append(options, dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(size)))
		}
		listener, err := dtls.ListenWithOptions("udp", udp, options...)
		if err != nil {
			return err
		}
		fmt.Println("listening")
		go accept(listener)
	} else {
		options := own.client()
		if size > 0 {
			options = append(options, dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(size)))
		}
		conn, err := dtls.DialWithOptions("udp", udp, options...)
		if err != nil {
			return err
		}
		if err := session(conn); err != nil {
			return err
		}
	}
	return send()
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
	lock.Lock()
	current = conn
	lock.Unlock()
	if err := printAgreed(conn); err != nil {
		return err
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

// Sends each line, and closes the session at the end of them.
func send() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
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
