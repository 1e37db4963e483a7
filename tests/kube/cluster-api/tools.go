//go:build tools

// Package tools names what ../build reads without compiling it, so that `go mod tidy` keeps it.
package tools

import _ "github.com/openshift/api/machine/v1beta1/zz_generated.crd-manifests"
