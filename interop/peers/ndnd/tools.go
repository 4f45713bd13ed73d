//go:build tools

package main

// The program ndnd, so that go.sum has what it needs.
import _ "github.com/named-data/ndnd/cmd/ndnd"
