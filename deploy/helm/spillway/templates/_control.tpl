{{- define "spillway.control.name" -}}
{{ include "spillway.fullname" . }}-control
{{- end -}}

{{- define "spillway.control.selectorLabels" -}}
app.kubernetes.io/name: spillway-control
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.control.labels" -}}
{{ include "spillway.control.selectorLabels" . }}
{{ include "spillway.releaseLabels" . }}
{{- end -}}

{{- /* Labels of the pods of jobs: not those that the Service and the Deployment choose. */ -}}
{{- define "spillway.control.jobLabels" -}}
app.kubernetes.io/name: spillway-control-job
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* What the schema cannot say of values for the control plane. */ -}}
{{- define "spillway.control.validate" -}}
{{- $control := .Values.control -}}
{{- if $control.enabled -}}
{{- if not (or .Values.redis.addresses .Values.redis.url.existingSecret) -}}
{{- fail "control: sidecars and the control meet in Redis; set redis.addresses or redis.url.existingSecret" -}}
{{- end -}}
{{- if .Values.redis.url.optional -}}
{{- fail "redis.url.optional: the control cannot start without Redis; remove it" -}}
{{- end -}}
{{- if not $control.database.existingSecret -}}
{{- fail "control.database.existingSecret: the control needs the Secret with the URL of PostgreSQL" -}}
{{- end -}}
{{- if and $control.tls.enabled (not $control.tls.existingSecret) -}}
{{- fail "control.tls.existingSecret: control.tls.enabled needs the Secret with the certificate" -}}
{{- end -}}
{{- if and $control.tls.existingSecret (not $control.tls.enabled) -}}
{{- fail "control.tls.existingSecret: set control.tls.enabled, or the Secret does nothing" -}}
{{- end -}}
{{- if and $control.serviceMonitor.enabled (not (and $control.tokens.existingSecret $control.serviceMonitor.existingSecret)) -}}
{{- fail "control.serviceMonitor: Prometheus needs a token of the role viewer; set control.tokens.existingSecret and control.serviceMonitor.existingSecret" -}}
{{- end -}}
{{- if and $control.s3.existingSecret (not (or $control.archive $control.backup.enabled)) -}}
{{- fail "control.s3.existingSecret: set control.archive or control.backup.enabled, or the Secret does nothing" -}}
{{- end -}}
{{- if $control.backup.enabled -}}
{{- if not $control.backup.to -}}
{{- fail "control.backup.to: name the bucket, such as s3://bucket/spillway" -}}
{{- end -}}
{{- if not $control.backup.postgresImage -}}
{{- fail "control.backup.postgresImage: name an image with pg_dump and a shell, not older than your PostgreSQL, such as postgres:15" -}}
{{- end -}}
{{- if and $control.backup.redisImage (ne .Values.redis.type "single") -}}
{{- fail "control.backup.redisImage: only redis.type single is backed up here; back up each server by deploy/backup/redis.sh" -}}
{{- end -}}
{{- end -}}
{{- $set := list -}}
{{- range (include "spillway.control.env" . | fromYamlArray) }}{{- $set = append $set .name -}}{{- end -}}
{{- range $name, $_ := $control.settings -}}
{{- if has $name $set -}}{{- fail (printf "control.settings.%s: the chart sets this variable from other values; see the README" $name) -}}{{- end -}}
{{- end -}}
{{- else if or $control.backup.enabled $control.serviceMonitor.enabled $control.database.existingSecret -}}
{{- fail "control: set control.enabled, or the other values of control do nothing" -}}
{{- end -}}
{{- end -}}

{{- /* The login of the S3-compatible service. Empty: as the tools of AWS find it. */ -}}
{{- define "spillway.control.s3Env" -}}
{{- with .Values.control.s3 -}}
{{- with .endpoint }}
- {name: CONTROL_S3_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- with .region }}
- {name: CONTROL_S3_REGION, value: {{ . | quote }}}
{{- end }}
{{- if .existingSecret }}
- {name: CONTROL_S3_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .accessKey }}}}}
- {name: CONTROL_S3_SECRET_KEY, valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .secretKey }}}}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The control's environment that follows from values, without settings. */ -}}
{{- define "spillway.control.env" -}}
{{- $control := .Values.control }}
- {name: CONTROL_LISTEN, value: ":8090"}
- {name: CONTROL_DATABASE_URL_FILE, value: /etc/spillway/database/{{ $control.database.key }}}
{{- if $control.tokens.existingSecret }}
- {name: CONTROL_TOKEN_FILE, value: /etc/spillway/tokens/{{ $control.tokens.key }}}
{{- end }}
{{- if $control.tls.enabled }}
- {name: CONTROL_TLS_CERT, value: /etc/spillway/tls/{{ $control.tls.certKey }}}
- {name: CONTROL_TLS_KEY, value: /etc/spillway/tls/{{ $control.tls.keyKey }}}
{{- end }}
{{- if $control.archive }}
- {name: CONTROL_ARCHIVE, value: {{ $control.archive | quote }}}
{{- include "spillway.control.s3Env" . }}
{{- end }}
{{- include "spillway.storeEnv" . }}
{{- end -}}

{{- /* Variables that sidecars and the control have to have in common, of those that users set. */ -}}
{{- define "spillway.control.common" -}}^(REDIS_.*|RECORD|RECORD_PLAIN_IDENTITIES|CACHE_KEY_PREFIX|KEY_SECRET.*)${{- end -}}

{{- define "spillway.control.secrets" -}}
{{- with .Values.control }}
- {name: database, folder: database, secret: {{ .database.existingSecret }}}
{{- with .tokens.existingSecret }}
- {name: tokens, folder: tokens, secret: {{ . }}}
{{- end }}
{{- if .tls.enabled }}
- {name: tls, folder: tls, secret: {{ .tls.existingSecret }}}
{{- end }}
{{- end }}
{{- include "spillway.storeSecrets" . }}
{{- end -}}

{{- /* A container that runs the control with the words of args. */ -}}
{{- define "spillway.control.container" -}}
{{- $root := .root -}}
name: control
image: {{ include "spillway.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [/bin/spillway, control, serve]
{{- with .args }}
args: [{{ join ", " . }}]
{{- end }}
env:
{{- include "spillway.control.env" $root }}
{{- $common := include "spillway.control.common" $root }}
{{- if $root.Values.control.record }}
- {name: RECORD, value: "true"}
{{- end }}
{{- range $name, $value := $root.Values.settings }}
{{- if regexMatch $common $name }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- range $name, $value := $root.Values.control.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- range $root.Values.extraEnv }}
{{- if regexMatch $common .name }}
- {{ toJson . }}
{{- end }}
{{- end }}
resources:
  {{- toYaml $root.Values.control.resources | nindent 2 }}
securityContext:
  {{- toYaml $root.Values.securityContext | nindent 2 }}
volumeMounts:
{{- range (include "spillway.control.secrets" $root | fromYamlArray) }}
- {name: {{ .name }}, mountPath: /etc/spillway/{{ .folder }}, readOnly: true}
{{- end }}
- {name: temporary, mountPath: /tmp} # files of the archive are written here first
{{- end -}}

{{- define "spillway.control.volumes" -}}
{{- range (include "spillway.control.secrets" . | fromYamlArray) }}
- {name: {{ .name }}, secret: {secretName: {{ .secret }}, defaultMode: 0444}}
{{- end }}
- {name: temporary, emptyDir: {}}
{{- end -}}
