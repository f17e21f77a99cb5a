package telemetry

import "testing"

// TestASecretThatBeginsWithAnotherIsHiddenWhole, as a new password may that was made of the old one.
func TestASecretThatBeginsWithAnotherIsHiddenWhole(t *testing.T) {
	var s Secrets
	s.Add("old-password")
	s.AddRecent("old-password-and-more")
	if got := s.conceal("login old-password-and-more, then old-password"); got != "login ***, then ***" {
		t.Errorf("the log shows %q", got)
	}
}
