// Package descriptors holds what is being limited: descriptors and attributes, rules over scopes, key encoding, and the
// compiled Match from a request to its charges. It takes plain structs, not YAML.
package descriptors
