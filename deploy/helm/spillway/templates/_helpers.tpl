{{- define "spillway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains "spillway" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-spillway" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "spillway.selectorLabels" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.labels" -}}
{{ include "spillway.selectorLabels" . }}
{{ include "spillway.releaseLabels" . }}
{{- end -}}

{{- define "spillway.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "spillway.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- define "spillway.rulesConfigMap" -}}
{{ .Values.rules.existingConfigMap | default (printf "%s-rules" (include "spillway.fullname" .)) }}
{{- end -}}

{{- define "spillway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "spillway.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* Not empty where pods share a Redis, be it named by values, settings or extraEnv. */ -}}
{{- define "spillway.shared" -}}
{{- if or .Values.redis.addresses .Values.redis.url.existingSecret .Values.settings.REDIS_URL }}redis{{ end -}}
{{- range .Values.extraEnv }}{{ if eq .name "REDIS_URL" }}redis{{ end }}{{ end -}}
{{- end -}}

{{- /* The role of loopback for the admin API; empty where tokens or certificates decide. */ -}}
{{- define "spillway.local" -}}
{{- if not (or .Values.admin.existingSecret .Values.settings.ADMIN_TOKEN_FILE .Values.settings.ADMIN_TLS_CLIENT_CA) -}}
{{ .Values.admin.local | default (ternary "view" "operate" (eq .Values.mode "sidecar")) }}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot say: values that contradict each other. */ -}}
{{- define "spillway.validate" -}}
{{- $redis := .Values.redis -}}
{{- if and .Values.rules.files .Values.rules.existingConfigMap -}}
{{- fail "rules: set either rules.files or rules.existingConfigMap, not both" -}}
{{- end -}}
{{- if and .Values.rules.published (not (or .Values.redis.addresses .Values.redis.url.existingSecret)) -}}
{{- fail "rules.published: published rules are in Redis; set redis.addresses or redis.url.existingSecret" -}}
{{- end -}}
{{- if and $redis.addresses $redis.url.existingSecret -}}
{{- fail "redis: set either redis.addresses or redis.url.existingSecret, not both" -}}
{{- end -}}
{{- if and (eq $redis.type "single") (gt (len $redis.addresses) 1) -}}
{{- fail "redis.addresses: several need redis.type sentinel, cluster or ring" -}}
{{- end -}}
{{- if and (eq $redis.type "sentinel") $redis.addresses (not $redis.master) -}}
{{- fail "redis.master: sentinels need the master's name" -}}
{{- end -}}
{{- if and $redis.master (ne $redis.type "sentinel") -}}
{{- fail "redis.master: only redis.type sentinel has a master's name" -}}
{{- end -}}
{{- if not (or $redis.addresses $redis.url.existingSecret) -}}
{{- if or $redis.auth.existingSecret $redis.sentinelAuth.existingSecret $redis.tls.enabled (ne $redis.type "single") -}}
{{- fail "redis: a type, a password or TLS needs redis.addresses or redis.url.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- if and $redis.sentinelAuth.existingSecret (ne $redis.type "sentinel") -}}
{{- fail "redis.sentinelAuth: only redis.type sentinel has sentinels" -}}
{{- end -}}
{{- if and $redis.tls.existingSecret (not $redis.tls.enabled) -}}
{{- fail "redis.tls.existingSecret: set redis.tls.enabled, or the Secret does nothing" -}}
{{- end -}}
{{- if ne (empty $redis.tls.certKey) (empty $redis.tls.keyKey) -}}
{{- fail "redis.tls: set both certKey and keyKey, or neither" -}}
{{- end -}}
{{- if and $redis.tls.certKey (not $redis.tls.existingSecret) -}}
{{- fail "redis.tls.existingSecret: a certificate needs the Secret that holds it" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) -}}
{{- fail "tls.existingSecret: tls.enabled needs the Secret with the certificate" -}}
{{- end -}}
{{- if and (or .Values.tls.client.required .Values.tls.client.names) (not .Values.tls.enabled) -}}
{{- fail "tls.client: certificates of callers need tls.enabled" -}}
{{- end -}}
{{- if and .Values.tls.client.names (not .Values.tls.client.required) -}}
{{- fail "tls.client.names: names are checked only with tls.client.required" -}}
{{- end -}}
{{- if and .Values.service.headless (ne .Values.service.type "ClusterIP") -}}
{{- fail "service.headless: a headless Service is of the type ClusterIP" -}}
{{- end -}}
{{- if and (eq .Values.mode "service") .Values.autoscaling.enabled (not (include "spillway.shared" .)) -}}
{{- fail "autoscaling: several pods need a Redis, or each admits the whole limit; set redis.addresses" -}}
{{- end -}}
{{- if and .Values.admin.local .Values.admin.existingSecret -}}
{{- fail "admin: with admin.existingSecret the tokens have roles; remove admin.local" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling: minReplicas is above maxReplicas" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "serviceMonitor: set metrics.enabled, or there is nothing to scrape" -}}
{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- if .Values.autoscaling.enabled -}}{{- fail "autoscaling: in sidecar mode your workloads scale, and Spillway with them" -}}{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}{{- fail "serviceMonitor: there is no Service in sidecar mode; use a PodMonitor of your workloads" -}}{{- end -}}
{{- end -}}
{{- include "spillway.control.validate" . -}}
{{- $set := list -}}
{{- range (include "spillway.env" . | fromYamlArray) }}{{- $set = append $set .name -}}{{- end -}}
{{- range $name, $_ := .Values.settings -}}
{{- if has $name $set -}}{{- fail (printf "settings.%s: the chart sets this variable from other values; see the README" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The environment that follows from values, without settings and extraEnv. */ -}}
{{- define "spillway.env" -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
{{- $published := or .Values.rules.published .Values.control.enabled -}}
{{- $files := or .Values.rules.files .Values.rules.existingConfigMap $sidecar (not $published) }}
- {name: RULES, value: "{{ if $published }}redis:{{ if $files }},{{ end }}{{ end }}{{ if $files }}/etc/spillway/rules{{ end }}"}
- {name: RULES_REQUIRED, value: {{ .Values.rules.required | quote }}}
{{- if not (hasKey .Values.settings "SIDECAR_NAME") }}
- {name: SIDECAR_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- end }}
{{- if and .Values.control.enabled .Values.control.record }}
- {name: RECORD, value: "true"}
{{- end }}
{{- if $sidecar }}
# Loopback ports, out of the way of the application's.
- {name: PORT, value: {{ .Values.sidecar.ports.http | quote }}}
- {name: GRPC_PORT, value: {{ .Values.sidecar.ports.grpc | quote }}}
- {name: DEBUG_PORT, value: {{ .Values.sidecar.ports.debug | quote }}}
{{- if .Values.sidecar.socket }}
- {name: GRPC_UDS, value: /var/run/spillway/spillway.sock}
{{- end }}
{{- else }}
- {name: GRPC_HOST, value: 0.0.0.0}
- {name: GRPC_PORT, value: "8081"}
- {name: DRAIN_DELAY, value: {{ .Values.drainDelay | quote }}}
{{- end }}
{{- if .Values.metrics.enabled }}
- {name: USE_PROMETHEUS, value: "true"}
- {name: PROMETHEUS_ADDR, value: ":{{ ternary .Values.sidecar.ports.metrics .Values.metrics.port $sidecar }}"}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: GRPC_SERVER_USE_TLS, value: "true"}
- {name: GRPC_SERVER_TLS_CERT, value: /etc/spillway/tls/{{ .Values.tls.certKey }}}
- {name: GRPC_SERVER_TLS_KEY, value: /etc/spillway/tls/{{ .Values.tls.keyKey }}}
{{- if .Values.tls.client.required }}
- {name: GRPC_CLIENT_TLS_CACERT, value: /etc/spillway/clients/{{ .Values.tls.client.key }}}
{{- end }}
{{- with .Values.tls.client.names }}
- {name: GRPC_CLIENT_TLS_SAN, value: {{ join "," . | quote }}}
{{- end }}
{{- end }}
{{- include "spillway.storeEnv" . }}
{{- if .Values.admin.existingSecret }}
- {name: ADMIN_TOKEN_FILE, value: /etc/spillway/admin/{{ .Values.admin.key }}}
{{- end }}
{{- if eq (include "spillway.local" .) "view" }}
# All containers of a pod share its loopback.
- {name: ADMIN_LOCAL, value: view}
{{- end }}
{{- end -}}

{{- /* The environment that sidecars and the control have in common: where Redis is, and the secret of its keys. */ -}}
{{- define "spillway.storeEnv" -}}
{{- $redis := .Values.redis -}}
{{- if or $redis.addresses $redis.url.existingSecret }}
- {name: REDIS_TYPE, value: {{ $redis.type }}}
{{- if $redis.url.existingSecret }}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ $redis.url.existingSecret }}, key: {{ $redis.url.key }}, optional: {{ $redis.url.optional }}}}
{{- else if eq $redis.type "sentinel" }}
- {name: REDIS_URL, value: {{ join "," (prepend $redis.addresses $redis.master) | quote }}}
{{- else }}
- {name: REDIS_URL, value: {{ join "," $redis.addresses | quote }}}
{{- end }}
{{- if $redis.auth.existingSecret }}
- {name: REDIS_AUTH_FILE, value: /etc/spillway/redis-auth/{{ $redis.auth.key }}}
{{- end }}
{{- if $redis.sentinelAuth.existingSecret }}
- {name: REDIS_SENTINEL_AUTH_FILE, value: /etc/spillway/sentinel-auth/{{ $redis.sentinelAuth.key }}}
{{- end }}
{{- if $redis.tls.enabled }}
- {name: REDIS_TLS, value: "true"}
{{- if $redis.tls.existingSecret }}
{{- with $redis.tls.caKey }}
- {name: REDIS_TLS_CACERT, value: /etc/spillway/redis-tls/{{ . }}}
{{- end }}
{{- with $redis.tls.certKey }}
- {name: REDIS_TLS_CLIENT_CERT, value: /etc/spillway/redis-tls/{{ . }}}
{{- end }}
{{- with $redis.tls.keyKey }}
- {name: REDIS_TLS_CLIENT_KEY, value: /etc/spillway/redis-tls/{{ . }}}
{{- end }}
{{- end }}
{{- if $redis.tls.skipHostnameVerification }}
- {name: REDIS_TLS_SKIP_HOSTNAME_VERIFICATION, value: "true"}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.keySecret.existingSecret }}
- {name: KEY_SECRET_FILE, value: /etc/spillway/key/{{ .Values.keySecret.key }}}
{{- end }}
{{- end -}}

{{- /* The volumes of Secrets: name of the volume, folder below /etc/spillway, name of the Secret. */ -}}
{{- define "spillway.secrets" -}}
{{- if .Values.tls.enabled }}
- {name: spillway-tls, folder: tls, secret: {{ .Values.tls.existingSecret }}}
{{- if .Values.tls.client.required }}
- {name: spillway-clients, folder: clients, secret: {{ .Values.tls.client.existingSecret | default .Values.tls.existingSecret }}}
{{- end }}
{{- end }}
{{- include "spillway.storeSecrets" . }}
{{- with .Values.admin.existingSecret }}
- {name: spillway-admin, folder: admin, secret: {{ . }}}
{{- end }}
{{- end -}}

{{- /* Those that sidecars and the control have in common. */ -}}
{{- define "spillway.storeSecrets" -}}
{{- $redis := .Values.redis -}}
{{- with $redis.auth.existingSecret }}
- {name: spillway-redis-auth, folder: redis-auth, secret: {{ . }}}
{{- end }}
{{- with $redis.sentinelAuth.existingSecret }}
- {name: spillway-sentinel-auth, folder: sentinel-auth, secret: {{ . }}}
{{- end }}
{{- with $redis.tls.existingSecret }}
- {name: spillway-redis-tls, folder: redis-tls, secret: {{ . }}}
{{- end }}
{{- with .Values.keySecret.existingSecret }}
- {name: spillway-key, folder: key, secret: {{ . }}}
{{- end }}
{{- end -}}

{{- define "spillway.volumes" -}}
- {name: spillway-rules, configMap: {name: {{ .rules | default (include "spillway.rulesConfigMap" .root) }}}}
{{- range (include "spillway.secrets" .root | fromYamlArray) }}
- {name: {{ .name }}, secret: {secretName: {{ .secret }}, defaultMode: 0444}}
{{- end }}
{{- if and (eq .root.Values.mode "sidecar") .root.Values.sidecar.socket }}
- {name: spillway-socket, emptyDir: {}}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "spillway.container" -}}
name: spillway
image: {{ include "spillway.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.mode "sidecar" }}
# A native sidecar: it is up before the application starts, and ends after it.
restartPolicy: Always
{{- end }}
env:
{{ include "spillway.env" . }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- if eq .Values.mode "service" }}
ports:
- {name: grpc, containerPort: 8081}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- if eq .Values.mode "sidecar" }}
ports:
- {name: spillway-metric, containerPort: {{ .Values.sidecar.ports.metrics }}}
{{- else }}
- {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- end }}
{{- end }}
# Not HTTP probes: the port with /readyz has /json too, and stays on loopback.
startupProbe: {exec: {command: [/bin/sidecar, healthcheck, live]}, periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 60}
readinessProbe: {exec: {command: [/bin/sidecar, healthcheck]}, periodSeconds: {{ ternary 10 2 (eq .Values.mode "sidecar") }}, timeoutSeconds: 3}
livenessProbe: {exec: {command: [/bin/sidecar, healthcheck, live]}, periodSeconds: 10, timeoutSeconds: 3}
resources:
  {{- toYaml (ternary .Values.sidecar.resources .Values.resources (eq .Values.mode "sidecar")) | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
- {name: spillway-rules, mountPath: /etc/spillway/rules, readOnly: true} # the folder: a subPath is never updated
{{- range (include "spillway.secrets" . | fromYamlArray) }}
- {name: {{ .name }}, mountPath: /etc/spillway/{{ .folder }}, readOnly: true}
{{- end }}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.socket }}
- {name: spillway-socket, mountPath: /var/run/spillway}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What all pods of the release have in common, but for labels and containers. */ -}}
{{- define "spillway.podSpec" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A spread over nodes and zones that the scheduler may break, of the pods that labels choose. */ -}}
{{- define "spillway.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $ | nindent 6 }}
{{- end }}
{{- end -}}
