// A client of go-coap with 64 confirmable GETs at once (NSTART 64): `gocoap ADDRESS PORT [IDENTITY KEY]`.
//
// Each line of its input is a time in milliseconds. It asks for so long, and prints how many requests were answered.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	piondtls "github.com/pion/dtls/v3"
	"github.com/plgd-dev/go-coap/v3/dtls"
	"github.com/plgd-dev/go-coap/v3/message/codes"
	"github.com/plgd-dev/go-coap/v3/options"
	"github.com/plgd-dev/go-coap/v3/udp"
	"github.com/plgd-dev/go-coap/v3/udp/client"
)

const (
	atOnce   = 64
	path     = "/example_data"
	valueLen = 16
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go-coap:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	conn, err := connect(words)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		milliseconds, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		answered, err := ask(conn, time.Duration(milliseconds)*time.Millisecond)
		if err != nil {
			return err
		}
		fmt.Println(answered)
	}
	return lines.Err()
}

func connect(words []string) (*client.Conn, error) {
	settings := []udp.Option{
		options.WithTransmission(atOnce, 2*time.Second, 4),
		options.WithLimitClientParallelRequest(atOnce),
		options.WithLimitClientEndpointParallelRequest(atOnce),
	}
	switch len(words) {
	case 2:
		return udp.Dial(net.JoinHostPort(words[0], words[1]), settings...)
	case 4:
		identity, key := []byte(words[2]), []byte(words[3])
		secure := dtls.NewDTLSClientOptions(
			piondtls.WithPSK(func([]byte) ([]byte, error) { return key, nil }),
			piondtls.WithPSKIdentityHint(identity),
			piondtls.WithCipherSuites(piondtls.TLS_PSK_WITH_AES_128_CCM_8),
		)
		return dtls.Dial(net.JoinHostPort(words[0], words[1]), secure, settings...)
	default:
		return nil, errors.New("usage: gocoap ADDRESS PORT [IDENTITY KEY]")
	}
}

// Asks for so long, and returns how many requests were answered.
func ask(conn *client.Conn, duration time.Duration) (uint64, error) {
	end := time.Now().Add(duration)
	var answered atomic.Uint64
	var askers sync.WaitGroup
	failed := make(chan error, atOnce)
	for range atOnce {
		askers.Add(1)
		go func() {
			defer askers.Done()
			for time.Now().Before(end) {
				if err := askOnce(conn); err != nil {
					failed <- err
					return
				}
				answered.Add(1)
			}
		}()
	}
	askers.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return answered.Load(), nil
	}
}

func askOnce(conn *client.Conn) error {
	response, err := conn.Get(context.Background(), path)
	if err != nil {
		return err
	}
	defer conn.ReleaseMessage(response)
	value, err := response.ReadBody()
	if err != nil {
		return err
	}
	if response.Code() != codes.Content || len(value) != valueLen {
		return fmt.Errorf("a response without the value: %v", response.Code())
	}
	return nil
}
