module tegmen-bench-gocoap

go 1.25.0

require (
	github.com/pion/dtls/v3 v3.1.5
	github.com/plgd-dev/go-coap/v3 v3.5.5
)

require (
	github.com/dsnet/golib/memfile v1.0.0 // indirect
	github.com/pion/logging v0.2.4 // indirect
	github.com/pion/transport/v4 v4.0.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/exp v0.0.0-20260611194520-c48552f49976 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
