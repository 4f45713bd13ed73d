module tegmen-interop-ndnd

go 1.24.0

require github.com/named-data/ndnd v1.5.3

require (
	github.com/cespare/xxhash v1.1.0 // indirect
	golang.org/x/exp v0.0.0-20251009144603-d2f985daa21b // indirect
)
