package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// sumsFile is what sha256sum makes of the files of a backup. It is sent last: without it a backup is not whole, and is
// not listed.
const sumsFile = "SHA256SUMS"

func newBackups() *cobra.Command {
	cmd := group("backups", "backup", "Send folders with backups to a bucket, and fetch them",
		`Send folders with backups to a bucket, and fetch them. PLACE is s3://bucket/prefix, or a folder; CONTROL_S3_…
has the login. docs/guides/backup.md explains what makes such a folder, and what restores one.`)
	verb := func(use, short, example string,
		run func(ctx context.Context, store archive.Store, out *printer, args []string) error) {
		_, arguments, _ := strings.Cut(use, " ")
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Long: short + ".", Example: "  spillway backups " + example,
			Args: argumentsOf(arguments),
			RunE: printing(func(cmd *cobra.Command, out *printer, args []string) error {
				own, err := settings.ArchiveFromEnvironment(os.Environ())
				if err != nil {
					return err
				}
				own.Archive = args[slices.Index(strings.Fields(arguments), "PLACE")]
				store, err := openStore(&own)
				if err != nil {
					return err
				}
				return run(cmd.Context(), store, out, args)
			}),
		})
	}
	verb("send FOLDER PLACE", "Send a folder, and print the name of the backup", "send /backup s3://bucket/spillway",
		sendBackup)
	verb("list PLACE", "List the backups that are whole, the oldest first", "list s3://bucket/spillway", listBackups)
	verb("fetch PLACE NAME FOLDER", "Fetch a backup into a folder, which must be missing or empty",
		"fetch s3://bucket/spillway 2026-03-01T021700Z /backup", fetchBackup)
	return cmd
}

func sendBackup(ctx context.Context, store archive.Store, out *printer, args []string) error {
	name, sent := time.Now().UTC().Format("2006-01-02T150405Z"), 0
	sums, err := os.CreateTemp("", "spillway-backup")
	if err != nil {
		return err
	}
	defer os.Remove(sums.Name())
	defer sums.Close()
	err = filepath.WalkDir(args[0], func(at string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return notEmpty(at)
		}
		if err != nil {
			return err
		}
		sent++
		below, err := filepath.Rel(args[0], at)
		if err != nil {
			return err
		}
		return sendFile(ctx, store, name, filepath.ToSlash(below), at, sums)
	})
	if err == nil {
		err = store.Put(ctx, path.Join(name, sumsFile), sums)
	}
	if err != nil {
		return err
	}
	return out.value(object{"name": name, "files": sent}, func() { out.line("%s: %d files", name, sent) })
}

// notEmpty refuses an empty folder: a bucket keeps files alone, and PostgreSQL does not start without its folders.
func notEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s is empty, and a backup of a bucket has files alone: send a tar of the folder", folder)
	}
	return err
}

// sendFile sends one file of a backup, and writes its line of the checksums.
func sendFile(ctx context.Context, store archive.Store, backup, name, from string, sums io.Writer) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	if err == nil {
		err = store.Put(ctx, path.Join(backup, name), file)
	}
	if err == nil {
		_, err = fmt.Fprintf(sums, "%x  %s\n", hash.Sum(nil), name)
	}
	return err
}

func listBackups(ctx context.Context, store archive.Store, out *printer, _ []string) error {
	all, err := store.List(ctx, "")
	if err != nil {
		return err
	}
	names := []string{}
	for _, one := range all {
		name, file := path.Split(one)
		if file == sumsFile {
			names = append(names, strings.TrimSuffix(name, "/"))
		}
	}
	return out.value(names, func() {
		for _, name := range names {
			out.line("%s", plain(name))
		}
	})
}

func fetchBackup(ctx context.Context, store archive.Store, out *printer, args []string) error {
	name, folder := args[1], args[2]
	entries, err := os.ReadDir(folder)
	if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not an empty folder: name a new one, nothing is overwritten", folder)
	}
	sums := filepath.Join(folder, sumsFile)
	_, err = getFile(ctx, store, path.Join(name, sumsFile), sums)
	if errors.Is(err, archive.ErrMissing) {
		err = fmt.Errorf("there is no backup %s that is whole: spillway backups list shows them", name)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range lines {
		err = fetchFile(ctx, store, name, line, folder)
		if err != nil {
			return err
		}
	}
	return out.value(object{"name": name, "files": len(lines)}, func() { out.line("%s: %d files", name, len(lines)) })
}

// fetchFile fetches the file of a line of the checksums, and compares it.
func fetchFile(ctx context.Context, store archive.Store, backup, line, folder string) error {
	want, file, found := strings.Cut(line, "  ")
	if !found || !filepath.IsLocal(file) {
		return fmt.Errorf("%s of %s has a line that no backup has: %q", sumsFile, backup, line)
	}
	got, err := getFile(ctx, store, path.Join(backup, file), filepath.Join(folder, filepath.FromSlash(file)))
	if err == nil && got != want {
		err = fmt.Errorf("%s of %s is not what was sent: take another backup", file, backup)
	}
	return err
}

// getFile fetches one file, and returns its SHA-256.
func getFile(ctx context.Context, store archive.Store, name, to string) (sum string, err error) {
	from, err := store.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer from.Close()
	err = os.MkdirAll(filepath.Dir(to), 0o700)
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, hash), from)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Sync(), file.Close())
}
