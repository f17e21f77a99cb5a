// Package settings is what the environment says: read into a Config, with defaults, checked as a whole, and explained where it is
// wrong or does nothing. It knows the names of the reference server's variables and how each of them fares here. It opens no
// connection and no socket, and imports no other room.
package settings
