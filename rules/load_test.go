package rules

// Load reads, checks and compiles the files once.
func (f *Files) Load() Load {
	snap, err := f.snapshot(nil)
	if err != nil {
		return Load{Err: err}
	}
	return f.compile(snap.sources)
}

// Text lists what was found, one line each: what kept the rules from being read, then FormatProblems.
func (l Load) Text() string {
	text := FormatProblems(l.Problems)
	if l.Err == nil {
		return text
	}
	return l.Err.Error() + "\n" + text
}
