package main

import (
	"bytes"
	"sync"

	"github.com/pion/dtls/v3"
)

// Sessions that may be resumed, for as long as the program runs. The key of a client has an address and the name of a server.
type store struct {
	sessions sync.Map
	name     string // of the server, if its sessions are resumed at any address
}

func (store *store) place(key []byte) string {
	if store.name != "" && bytes.HasSuffix(key, []byte("_"+store.name)) {
		return store.name
	}
	return string(key)
}

func (store *store) Set(key []byte, session dtls.Session) error {
	store.sessions.Store(store.place(key), session)
	return nil
}

func (store *store) Get(key []byte) (dtls.Session, error) {
	if session, ok := store.sessions.Load(store.place(key)); ok {
		return session.(dtls.Session), nil
	}
	return dtls.Session{}, nil
}

func (store *store) Del(key []byte) error {
	store.sessions.Delete(store.place(key))
	return nil
}
