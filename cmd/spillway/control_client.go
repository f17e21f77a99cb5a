package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control"
	"github.com/spillway-mesh/spillway/rules"
)

// addControlServer adds the flags that name a control.
func addControlServer(cmd *cobra.Command) {
	addServer(cmd)
	at := os.Getenv("SPILLWAY_CONTROL")
	if at == "" {
		at = "http://127.0.0.1:8090"
	}
	f := cmd.Flags().Lookup("server")
	f.Usage, f.DefValue = "the API of a control; SPILLWAY_CONTROL sets the default", at
	must(f.Value.Set(at))
	cmd.Flags().Lookup("token-file").Usage = "file that holds the token, where the control has CONTROL_TOKEN_FILE"
}

func newControlPublish() *cobra.Command {
	cmd := &cobra.Command{
		Use: "publish FILE...", Short: "Publish rule files: each becomes a version of its domain", Example: "  spillway control publish examples/rules/shop.yaml --note \"more for partners\"",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: ruleFiles,
		Long: `Send rule files to a control, which compiles each as a sidecar does, keeps it as a version of its domain, and publishes it. A file that
does not compile is refused whole, with all its problems. Without --if-match it takes the place of what is in force when the command starts;
where another publishes meanwhile, the command fails.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, file := range args {
				err := publishFile(cmd, file)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			return nil
		},
	}
	addControlServer(cmd)
	cmd.Flags().String("note", "", "why, for the audit")
	cmd.Flags().Int64("if-match", 0, "number of the publication that has to be in force; 0: the one that is")
	cmd.Flags().Bool("draft", false, "keep the version, and do not publish it")
	return cmd
}

// publishFile sends one file.
func publishFile(cmd *cobra.Command, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	domain, problems := rules.Decode(file, text)
	if domain.Name == "" {
		return fmt.Errorf("the file names no domain:\n%s", rules.FormatProblems(problems))
	}
	base := "/v1/domains/" + url.PathEscape(domain.Name)
	now, _ := cmd.Flags().GetInt64("if-match")
	if now == 0 {
		now, err = inForce(cmd, base)
		if err != nil {
			return err
		}
	}
	draft, _ := cmd.Flags().GetBool("draft")
	body := map[string]any{"text": string(text), "publish": !draft}
	if note := cmd.Flag("note").Value.String(); note != "" {
		body["note"] = note
	}
	answer, err := askIf(cmd, http.MethodPost, base+"/versions", body, now)
	if err != nil {
		return err
	}
	var added control.VersionAdded
	err = json.Unmarshal(answer, &added)
	if err != nil || added.Version == nil {
		return &unreachable{fmt.Errorf("the answer cannot be read: %w", err)}
	}
	if added.Publication == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d is kept, and not published\n", domain.Name, added.Version.Version)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d is in force (publication %d)\n", domain.Name, added.Version.Version, added.Publication.Publication)
	return nil
}

// askIf is ask with the header if-match; 0: the one that nothing is there yet.
func askIf(cmd *cobra.Command, method, path string, body any, revision int64) (json.RawMessage, error) {
	request, err := requestOf(cmd, method, path, body, nil)
	if err != nil {
		return nil, err
	}
	if revision > 0 {
		request.Header.Set("If-Match", `"`+strconv.FormatInt(revision, 10)+`"`)
	} else {
		request.Header.Set("If-None-Match", "*")
	}
	transport, err := transportOf(cmd)
	if err != nil {
		return nil, err
	}
	return send(&http.Client{Timeout: askWithin, Transport: transport}, request)
}

// inForce is the number of the newest publication of a domain, 0 for none.
func inForce(cmd *cobra.Command, base string) (int64, error) {
	answer, err := ask(cmd, http.MethodGet, "/v1/domains", nil, nil)
	if err != nil {
		return 0, err
	}
	var all control.PublicationList
	err = json.Unmarshal(answer, &all)
	if err != nil {
		return 0, &unreachable{fmt.Errorf("the answer cannot be read: %w", err)}
	}
	for _, p := range all.Domains {
		if "/v1/domains/"+url.PathEscape(p.Domain) == base {
			return p.Publication, nil
		}
	}
	return 0, nil
}

func newControlExport() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export DOMAIN", Short: "Print the rule file of a domain as it was published", Example: "  spillway control export shop > shop.yaml", Args: cobra.ExactArgs(1),
		Long: "Print the rule file of the version that is in force, or of another one, to the byte as it was published.",
		RunE: func(cmd *cobra.Command, args []string) error { return export(cmd, args[0]) },
	}
	addControlServer(cmd)
	cmd.Flags().Int64("of", 0, "number of the version; 0: the one in force")
	return cmd
}

func export(cmd *cobra.Command, domain string) error {
	base := "/v1/domains/" + url.PathEscape(domain)
	version, _ := cmd.Flags().GetInt64("of")
	if version == 0 {
		answer, err := ask(cmd, http.MethodGet, base+"/published", nil, nil)
		if err != nil {
			return err
		}
		var p control.Publication
		err = json.Unmarshal(answer, &p)
		if err != nil || p.Version == 0 {
			return &unreachable{errors.New("the answer names no version")}
		}
		version = p.Version
	}
	answer, err := ask(cmd, http.MethodGet, base+"/versions/"+strconv.FormatInt(version, 10), nil, nil)
	if err != nil {
		return err
	}
	var v control.VersionText
	err = json.Unmarshal(answer, &v)
	if err != nil {
		return &unreachable{fmt.Errorf("the answer cannot be read: %w", err)}
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), v.Text)
	return err
}
