package main

import (
	"sync"

	"github.com/pion/dtls/v3"
)

// Sessions that may be resumed, for as long as the program runs.
type store struct {
	sessions sync.Map
}

func (store *store) Set(key []byte, session dtls.Session) error {
	store.sessions.Store(string(key), session)
	return nil
}

func (store *store) Get(key []byte) (dtls.Session, error) {
	if session, ok := store.sessions.Load(string(key)); ok {
		return session.(dtls.Session), nil
	}
	return dtls.Session{}, nil
}

func (store *store) Del(key []byte) error {
	store.sessions.Delete(string(key))
	return nil
}
