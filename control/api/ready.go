package api

import (
	"net/http"

	"github.com/spillway-mesh/spillway/admin"
)

// ready answers whether changes can be made.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	err := a.Database.Ready(r.Context())
	if err != nil {
		admin.NewProblem(http.StatusServiceUnavailable, "%v", err).Write(w)
		return
	}
	admin.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
