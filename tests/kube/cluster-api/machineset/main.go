// Command machineset runs the MachineSet controller of Cluster API, and nothing else of it, against the server of a kubeconfig:
//
//	capi-machineset --kubeconfig FILE
//
// It shows what a real owner makes of the conditions on its Machines. All that is set up follows core/main.go of Cluster API; what
// is missing are webhooks, leader election, and ports. There is no Machine controller either: who waits for a Machine to go
// removes its finalizer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
)

const (
	name = "capi-machineset"
	// As in Cluster API's own command.
	resyncAfter = 10 * time.Minute
	// A test has a handful of MachineSets and one or two Clusters.
	workers = 2
	// More than a test asks for, so that the client never waits for itself.
	requestsPerSecond, requestsBurst = 100, 200
)

func main() {
	// A set of its own, as the library puts a flag of this name into the common one.
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "the `FILE` that says where the server is and who asks")
	_ = flags.Parse(os.Args[1:]) // It exits rather than returning an error.
	if *kubeconfig == "" || flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: usage: %s --kubeconfig FILE\n", name, name)
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = requestsPerSecond, requestsBurst
	// Its indexes would want the CRD of MachinePools.
	if err := feature.MutableGates.SetFromMap(map[string]bool{string(feature.MachinePool): false}); err != nil {
		return err
	}
	manager, err := manage(ctx, config)
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

func manage(ctx context.Context, config *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		clusterv1.AddToScheme,
		apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  setup.ManagerCacheOptions(scheme, name, "", resyncAfter),
		Client:                 setup.ManagerClientOptions(),
		HealthProbeBindAddress: "0",
		Metrics:                metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, fmt.Errorf("reaching the server at %s: %w", config.Host, err)
	}
	if err := index.AddDefaultIndexes(ctx, manager); err != nil {
		return nil, explained(err)
	}
	return manager, explained(reconcileMachineSets(ctx, manager))
}

func reconcileMachineSets(ctx context.Context, manager ctrl.Manager) error {
	secrets, err := setup.CreateSecretCachingClient(manager)
	if err != nil {
		return err
	}
	options := controller.Options{MaxConcurrentReconciles: workers}
	clusters, err := clustercache.SetupWithManager(ctx, manager, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, requestsPerSecond, requestsBurst),
	}, options)
	if err != nil {
		return err
	}
	return (&machineset.Reconciler{
		// Cluster API's own binary is called manager, and that is whose fields these are. This one's name is what the
		// reconciler calls itself where it applies.
		Client:          client.WithFieldOwner(manager.GetClient(), "manager"),
		APIReader:       manager.GetAPIReader(),
		ClusterCache:    clusters,
		PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
	}).SetupWithManager(ctx, manager, options)
}

// A missing CRD is what goes wrong most often, and the library's message does not say what to do.
func explained(err error) error {
	if err != nil && strings.Contains(err.Error(), "no matches for kind") {
		return fmt.Errorf("%w: apply the CRDs in crds/v1beta2 first", err)
	}
	return err
}
