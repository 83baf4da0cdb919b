package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/scrypt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	passwordFile = nodeDir + "/password"
	secretsPath  = "/api/v1/namespaces/kube-system/secrets"
	passwordType = "k3s.cattle.io/node-password"
)

var errWrongPassword = errors.New("unable to verify password for node")

// checkNodePassword compares a node's password with that of its secret, or makes the secret for a new node.
func (s *server) checkNodePassword(ctx context.Context, node, password string) error {
	name := strings.ToLower(node) + ".node-password.k3s"
	for {
		var secret kubeapi.Secret
		err := s.admin.Get(ctx, secretsPath+"/"+name, &secret)
		if err == nil {
			if !verifyHash(string(secret.Data["hash"]), password) {
				return fmt.Errorf("%w '%s': hash does not match", errWrongPassword, node)
			}
			return nil
		}
		if !kubeapi.IsNotFound(err) {
			return err
		}
		hash, err := newHash(password)
		if err != nil {
			return err
		}
		err = s.admin.Create(ctx, secretsPath, kubeapi.Secret{
			APIVersion: "v1", Kind: "Secret", Metadata: kubeapi.Meta{Name: name, Namespace: "kube-system"},
			Type: passwordType, Immutable: true, Data: map[string][]byte{"hash": []byte(hash)},
		}, nil)
		if !kubeapi.IsConflict(err) {
			return err
		}
		// Somebody else made it first: look again.
	}
}

// The hash is $1:<salt>:<log2 N>:<r>:<p>:<key>, k3s's form. N is far below k3s's 2^15: the double's secrets guard
// nothing, and a guest's CPU is emulated.
const (
	scryptLogN = 10
	scryptR    = 8
	scryptP    = 1
	scryptLen  = 64
	saltLen    = 8
)

func newHash(password string) (string, error) {
	salt := make([]byte, saltLen)
	if _, err := rand.Read(salt); err != nil {
		return "", err
	}
	key, err := scrypt.Key([]byte(password), salt, 1<<scryptLogN, scryptR, scryptP, scryptLen)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("$1:%s:%d:%d:%d:%s", hex.EncodeToString(salt), scryptLogN, scryptR, scryptP, base64.RawStdEncoding.EncodeToString(key)), nil
}

func verifyHash(hash, password string) bool {
	var logN, r, p int
	fields := strings.Split(strings.TrimPrefix(hash, "$"), ":")
	if len(fields) != 6 || fields[0] != "1" {
		return false
	}
	if _, err := fmt.Sscanf(strings.Join(fields[2:5], " "), "%d %d %d", &logN, &r, &p); err != nil || logN < 1 || logN > 20 {
		return false
	}
	salt, err := hex.DecodeString(fields[1])
	if err != nil {
		return false
	}
	want, err := base64.RawStdEncoding.DecodeString(fields[5])
	if err != nil {
		return false
	}
	got, err := scrypt.Key([]byte(password), salt, 1<<logN, r, p, len(want))
	return err == nil && same(string(got), string(want))
}
