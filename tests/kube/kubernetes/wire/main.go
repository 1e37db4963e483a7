// Writes apiserver/src/wire/messages.json: how the messages of Kubernetes' protobuf bodies read as JSON.
//
//	cd tests/kube/kubernetes && go run ./wire ../../../apiserver/src/kinds.json > ../../../apiserver/src/wire/messages.json
//
// The Go types carry all of it in their tags: the numbers of the fields, their names in JSON, which ones are left
// out when they are zero, and which structs are inlined. What a type does in a MarshalJSON of its own has to be
// said here (see special and choices); an unknown one stops the program.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path"
	"reflect"
	"sort"
	"strings"

	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Read by code of the server.
var special = map[string]string{
	"meta.v1.Time":            "time",
	"meta.v1.MicroTime":       "microtime",
	"util.intstr.IntOrString": "intorstring",
}

// Messages that are, in JSON, the first of these fields that is there.
var choices = map[string]string{
	"api.resource.Quantity":                         "1 string string",
	"meta.v1.FieldsV1":                              "1 raw json",
	"pkg.runtime.RawExtension":                      "1 raw json",
	"authentication.v1.ExtraValue":                  "1 items [string]",
	"authorization.v1.ExtraValue":                   "1 items [string]",
	"certificates.v1.ExtraValue":                    "1 items [string]",
	"apiextensions.v1.JSON":                         "1 raw json",
	"apiextensions.v1.JSONSchemaPropsOrArray":       "2 many [apiextensions.v1.JSONSchemaProps],1 one apiextensions.v1.JSONSchemaProps",
	"apiextensions.v1.JSONSchemaPropsOrBool":        "2 schema apiextensions.v1.JSONSchemaProps,1 allows bool",
	"apiextensions.v1.JSONSchemaPropsOrStringArray": "2 names [string],1 schema apiextensions.v1.JSONSchemaProps",
}

type encoder interface{ Marshal() ([]byte, error) }

var (
	ofJSON     = reflect.TypeFor[json.Marshaler]()
	ofProtobuf = reflect.TypeFor[encoder]()
	messages   = map[string]string{}
)

func main() {
	if err := extensions.AddToScheme(scheme.Scheme); err != nil {
		log.Fatal(err)
	}
	roots := map[string]string{}
	for _, kind := range kinds(os.Args[1]) {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			log.Fatal(err)
		}
		version, name := kind.ToAPIVersionAndKind()
		roots[version+" "+name] = message(reflect.TypeOf(object).Elem())
	}
	fmt.Printf("{\n\"kinds\": {\n%s\n},\n\"messages\": {\n%s\n}\n}\n", lines(roots), lines(messages))
}

// kinds says which bodies the server may get: the kinds of its resources and what is sent to their subresources.
func kinds(file string) []schema.GroupVersionKind {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	var known struct {
		Groups []struct {
			GroupVersion string
			Resources    []struct{ Group, Version, Kind string }
		}
	}
	if err := json.Unmarshal(text, &known); err != nil {
		log.Fatal(err)
	}
	found := []schema.GroupVersionKind{{Version: "v1", Kind: "DeleteOptions"}}
	for _, group := range known.Groups {
		own, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			log.Fatal(err)
		}
		for _, resource := range group.Resources {
			version := own
			if resource.Version != "" {
				version = schema.GroupVersion{Group: resource.Group, Version: resource.Version}
			}
			found = append(found, version.WithKind(resource.Kind))
		}
	}
	return found
}

// message notes a message and all that it leads to, and returns its name.
func message(of reflect.Type) string {
	name := path.Base(path.Dir(of.PkgPath())) + "." + path.Base(of.PkgPath()) + "." + of.Name()
	if known, ok := special[name]; ok {
		return known
	}
	if _, ok := messages[name]; ok {
		return name
	}
	if fields, ok := choices[name]; ok {
		messages[name] = "|" + fields
		for _, field := range strings.Split(fields, ",") {
			if strings.Contains(field, "JSONSchemaProps") {
				message(reflect.TypeFor[extensions.JSONSchemaProps]())
			}
		}
		return name
	}
	if of.Kind() != reflect.Struct || reflect.PointerTo(of).Implements(ofJSON) && of.Name() != "JSONSchemaProps" {
		log.Fatalf("%s writes its JSON itself: say how in special or choices", name)
	}
	messages[name] = "" // A message may hold itself.
	var fields []string
	for i := range of.NumField() {
		if field := of.Field(i); field.Tag.Get("protobuf") != "" {
			fields = append(fields, row(name, field))
		}
	}
	messages[name] = strings.Join(fields, ",")
	return name
}

// row is a field: its number, its name in JSON ("." if its own fields take its place) and its type. [T] is a list,
// {T} a map from strings, and T? is left out when it is zero.
func row(parent string, field reflect.StructField) string {
	number := strings.Split(field.Tag.Get("protobuf"), ",")[1]
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if strings.Contains(options, "inline") || name == "" {
		name = "."
	}
	if name == "-" {
		log.Fatalf("%s.%s is not in JSON", parent, field.Name)
	}
	text := shape(parent, field.Type)
	scalar := !strings.ContainsAny(text, ".[{")
	if scalar && strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
		if field.Type.Kind() != reflect.Pointer {
			text += "?"
		}
	}
	return number + " " + name + " " + text
}

func shape(parent string, of reflect.Type) string {
	if of.Kind() != reflect.Pointer && reflect.PointerTo(of).Implements(ofProtobuf) {
		return message(of)
	}
	switch of.Kind() {
	case reflect.Pointer:
		return shape(parent, of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + shape(parent, of.Elem()) + "]"
	case reflect.Map:
		if of.Key().Kind() == reflect.String {
			return "{" + shape(parent, of.Elem()) + "}"
		}
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "float"
	}
	log.Fatalf("%s holds a %s, which nobody has thought of", parent, of)
	return ""
}

func lines(of map[string]string) string {
	var all []string
	for name, text := range of {
		all = append(all, fmt.Sprintf("%q: %q", name, text))
	}
	sort.Strings(all)
	return strings.Join(all, ",\n")
}
