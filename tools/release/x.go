package main
import (_ "github.com/google/go-containerregistry/pkg/v1/layout"; _ "github.com/google/go-containerregistry/pkg/v1/validate"; _ "github.com/google/go-containerregistry/pkg/v1/mutate"; _ "golang.org/x/crypto/x509roots/fallback/bundle"; _ "golang.org/x/mod/semver")
func main(){}
