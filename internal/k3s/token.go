package k3s

import (
	"bytes"
	"crypto/rand"
	"errors"
	"regexp"
)

// NewSecret makes the secret that the first server of a new cluster gets as its token. Its letters and digits need no
// quoting anywhere, and can never be taken for the full form of a token, which k3s tells by its beginning K10.
func NewSecret() string { return rand.Text() }

// tokenForm is a token with the hash of the cluster's CA, so that a joining node knows whom it talks to.
var tokenForm = regexp.MustCompile(`^K10[0-9a-f]{64}::server:[^\s]+$`)

// ParseToken reads the file TokenPath. A file that is empty, cut, or holds a token without the hash of the cluster's CA
// is an error, which never holds the content: the file is there before k3s has written all of it.
func ParseToken(file []byte) (string, error) {
	token := string(bytes.TrimRight(file, "\r\n"))
	switch {
	case token == "":
		return "", errors.New("the token file is empty")
	case !tokenForm.MatchString(token):
		return "", errors.New("the token file does not hold a token of the form K10<sha256 of the CA>::server:<secret>")
	}
	return token, nil
}
