// Command crds copies the CustomResourceDefinitions that the tests of MachineHealthChecks need out of the Go modules that have
// them, each with one version only, so that no conversion webhook is needed:
//
//	crds FOLDER
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

var sources = []source{
	{to: "v1beta2", module: "sigs.k8s.io/cluster-api", folder: "core/config/crd/bases", version: "v1beta2", files: clusterAPI},
	{to: "v1beta1", module: "sigs.k8s.io/cluster-api", folder: "core/config/crd/bases", version: "v1beta1", files: clusterAPI},
	// The last that had v1alpha3. Not in go.mod, which can have one version of a module only.
	{to: "v1alpha3", module: "sigs.k8s.io/cluster-api@v0.3.25", folder: "config/crd/bases", version: "v1alpha3", files: clusterAPI},
	{to: "openshift", module: "github.com/openshift/api", folder: "machine/v1beta1/zz_generated.crd-manifests", version: "v1beta1", files: openShift},
}

var clusterAPI = []string{
	"cluster.x-k8s.io_clusters.yaml",
	"cluster.x-k8s.io_machinedeployments.yaml",
	"cluster.x-k8s.io_machinehealthchecks.yaml",
	"cluster.x-k8s.io_machines.yaml",
	"cluster.x-k8s.io_machinesets.yaml",
}

var openShift = []string{
	"0000_10_machine-api_01_machinehealthchecks.crd.yaml",
	"0000_10_machine-api_01_machines-Default.crd.yaml",
	"0000_10_machine-api_01_machinesets-Default.crd.yaml",
}

type source struct {
	to string
	// With no @version, go.mod says which.
	module, folder string
	version        string
	files          []string
}

// What a server needs to know of a CRD. Everything else goes, such as how to convert between versions, and an empty status.
type crd struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Group    string           `json:"group"`
		Names    map[string]any   `json:"names"`
		Scope    string           `json:"scope"`
		Versions []map[string]any `json:"versions"`
	} `json:"spec"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crds FOLDER")
		os.Exit(2)
	}
	for _, source := range sources {
		if err := source.copy(filepath.Join(os.Args[1], source.to)); err != nil {
			fmt.Fprintf(os.Stderr, "crds: %s of %s: %v\n", source.version, source.module, err)
			os.Exit(1)
		}
	}
}

func (source source) copy(to string) error {
	module, err := download(source.module)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, file := range source.files {
		crd, err := read(filepath.Join(module, source.folder, file))
		if err != nil {
			return err
		}
		if err := crd.keepOnly(source.version); err != nil {
			return err
		}
		if err := crd.write(to); err != nil {
			return err
		}
	}
	return nil
}

// The folder where Go keeps a module.
func download(module string) (string, error) {
	// Its standard output has the reason, too, if it fails.
	answer, failed := exec.Command("go", "mod", "download", "-json", module).Output()
	var downloaded struct{ Dir, Error string }
	if err := json.Unmarshal(answer, &downloaded); err != nil {
		return "", fmt.Errorf("go mod download: %w", errors.Join(failed, err))
	}
	if downloaded.Error != "" {
		return "", errors.New(downloaded.Error)
	}
	return downloaded.Dir, failed
}

func read(file string) (crd, error) {
	var crd crd
	text, err := os.ReadFile(file)
	if err != nil {
		return crd, err
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return crd, fmt.Errorf("%s: %w", file, err)
	}
	if crd.APIVersion != "apiextensions.k8s.io/v1" || crd.Kind != "CustomResourceDefinition" {
		return crd, fmt.Errorf("%s: %s %s is no CustomResourceDefinition of v1", file, crd.APIVersion, crd.Kind)
	}
	return crd, nil
}

func (crd *crd) keepOnly(version string) error {
	for _, found := range crd.Spec.Versions {
		if found["name"] == version {
			found["served"], found["storage"] = true, true
			crd.Spec.Versions = []map[string]any{found}
			return nil
		}
	}
	return fmt.Errorf("%s has no version %s", crd.Metadata.Name, version)
}

func (crd crd) write(folder string) error {
	text, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, crd.Metadata.Name+".yaml"), text, 0o644)
}
