package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// tokenHashLength is the length of the CA hash in a full token.
const tokenHashLength = 2 * sha256.Size

// token is a join token: K10<hash of the cluster's CA>::<user>:<secret>, or only the secret.
type token struct {
	caHash, user, secret string
}

// parseToken reads a token in its long or short form.
func parseToken(s string) (token, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return token{}, errors.New("token must not be empty")
	}
	rest, long := strings.CutPrefix(s, "K10")
	if !long {
		return token{secret: s}, nil
	}
	hash, creds, ok := strings.Cut(rest, "::")
	if !ok {
		return token{}, errors.New("invalid token format")
	}
	if hash != "" && len(hash) != tokenHashLength {
		return token{}, errors.New("invalid token CA hash length")
	}
	user, secret, ok := strings.Cut(creds, ":")
	if !ok || secret == "" {
		return token{}, errors.New("invalid token format")
	}
	return token{caHash: hash, user: user, secret: secret}, nil
}

// formatToken returns the long form for a cluster.
func formatToken(caPEM, user, secret string) string {
	return "K10" + hashHex(caPEM) + "::" + user + ":" + secret
}

// hashHex is the hash of a CA as served at /cacerts: of its PEM bytes as they are.
func hashHex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
