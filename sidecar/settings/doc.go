// Package settings reads the environment into a Config: it sets defaults, checks the whole, and explains each variable
// that is wrong or has no effect. It lists the reference server's variables and what each of them does here. It
// opens no connection and no socket, and imports no other room.
package settings
