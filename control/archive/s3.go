package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a store in an S3-compatible service.
type bucket struct {
	client *minio.Client
	name   string
	prefix string // empty, or ends with a slash
}

// openBucket reads bucket/prefix.
func openBucket(p Place, at string) (*bucket, error) {
	name, prefix, _ := strings.Cut(at, "/")
	if name == "" {
		return nil, fmt.Errorf("the archive %q must name a bucket: s3://bucket/prefix", p.At)
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	service, err := endpointOf(p.Endpoint)
	if err != nil {
		return nil, err
	}
	if p.Region == "" {
		p.Region = "us-east-1"
	}
	client, err := minio.New(service.Host, &minio.Options{Creds: login(p), Secure: service.Scheme == "https",
		Region: p.Region})
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	return &bucket{client, name, prefix}, nil
}

// endpointOf reads the URL of a service; an empty one is that of AWS.
func endpointOf(text string) (*url.URL, error) {
	if text == "" {
		text = "https://s3.amazonaws.com"
	}
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || strings.Trim(at.Path, "/") != "" {
		return nil, errors.New("the endpoint of the archive must be a URL such as https://s3.example.com")
	}
	return at, nil
}

// login is the key of the place, or what the tools of AWS would use.
func login(p Place) *credentials.Credentials {
	if p.AccessKey != "" {
		return credentials.NewStaticV4(p.AccessKey, p.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{}, &credentials.IAM{}})
}

// Open opens an object. It is asked for at once, so that a missing one is found out here.
func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err == nil {
		_, err = object.Stat()
	}
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		err = ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return object, nil
}

// Put sends an object. The service keeps it whole or not at all.
func (b *bucket) Put(ctx context.Context, name string, file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = b.client.PutObject(ctx, b.name, b.prefix+name, file, size,
			minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true})
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

// List lists the objects below a prefix.
func (b *bucket) List(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var names []string
	for object := range b.client.ListObjects(ctx, b.name,
		minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, fmt.Errorf("list the archive: %w", object.Err)
		}
		names = append(names, strings.TrimPrefix(object.Key, b.prefix))
	}
	slices.Sort(names)
	return names, nil
}

// Remove removes an object.
func (b *bucket) Remove(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
