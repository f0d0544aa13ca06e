{{/* Of a component: called with (dict "root" $ "component" "api"). */}}
{{- define "abeyance.selector" -}}
app.kubernetes.io/name: abeyance
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The Deployment of workers of the current build; each build has its own if Temporal tells them apart. A tag that
     cannot be a name as it is has its hash there, so that no two builds share one. */}}
{{- define "abeyance.worker" -}}
{{- if eq .Values.worker.versioning "off" -}}
{{ .Release.Name }}-worker
{{- else -}}
{{- $tag := .Values.image.tag -}}
{{- $name := printf "%s-worker-%s" .Release.Name ($tag | lower | replace "." "-" | replace "_" "-") -}}
{{- if or (gt (len $name) 63) (not (hasSuffix $tag $name)) -}}
{{ $name | trunc 54 | trimSuffix "-" }}-{{ sha256sum $tag | trunc 8 }}
{{- else -}}
{{ $name }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What pods of all components share. */}}
{{- define "abeyance.pod" -}}
serviceAccountName: {{ .root.Values.serviceAccountName }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
# Else our process is the first of its container, which ignores SIGTERM until it has a handler, so while it starts.
shareProcessNamespace: true
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.scheduling }}
{{ toYaml . }}
{{- end }}
volumes:
  - {name: tmp, emptyDir: {}}
  {{- with .root.Values.storage.claim }}
  - {name: blobs, persistentVolumeClaim: {claimName: {{ . }}}}
  {{- end }}
  {{- with .root.Values.notifications }}
  - {name: notifications, configMap: {name: {{ . }}}}
  {{- end }}
  {{- with .root.Values.temporal.clientCertificate }}
  - {name: temporal, secret: {secretName: {{ . }}, defaultMode: 0440}}
  {{- end }}
  {{- if and .root.Values.api.tokensSecret (ne .component "slack") }}
  - {name: tokens, secret: {secretName: {{ .root.Values.api.tokensSecret }}, defaultMode: 0440}}
  {{- end }}
{{- end -}}

{{/* What containers of all components share: everything but a name, arguments, ports and probes. */}}
{{- define "abeyance.container" -}}
{{- $v := .root.Values -}}
{{- $isWorker := has .component (list "worker" "setup") -}}
image: {{ $v.image.repository }}:{{ $v.image.tag }}{{ with $v.image.digest }}@{{ . }}{{ end }}
imagePullPolicy: {{ $v.image.pullPolicy }}
# The last line of the log says why a process did not start: it is in the status of the pod, too.
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: ABEYANCE_TASK_QUEUE, value: {{ $v.taskQueue | quote }}}
  - {name: ABEYANCE_DATABASE_URL, value: {{ $v.database.url | quote }}}
  - {name: TEMPORAL_ADDRESS, value: {{ $v.temporal.address | quote }}}
  - {name: TEMPORAL_NAMESPACE, value: {{ $v.temporal.namespace | quote }}}
  {{- if $v.temporal.tls }}
  - {name: TEMPORAL_TLS, value: "true"}
  {{- end }}
  {{- if $v.temporal.clientCertificate }}
  - {name: TEMPORAL_TLS_CLIENT_CERT_PATH, value: /run/secrets/temporal/tls.crt}
  - {name: TEMPORAL_TLS_CLIENT_KEY_PATH, value: /run/secrets/temporal/tls.key}
  {{- with $v.temporal.serverCa }}
  - {name: TEMPORAL_TLS_SERVER_CA_CERT_PATH, value: /run/secrets/temporal/{{ . }}}
  {{- end }}
  {{- end }}
  {{- if $v.storage.claim }}
  - {name: ABEYANCE_STORAGE, value: /blobs}
  - {name: ABEYANCE_STORAGE_SHARED, value: "true"}
  {{- else if $v.storage.url }}
  - {name: ABEYANCE_STORAGE, value: {{ $v.storage.url | quote }}}
  {{- end }}
  {{- if $v.notifications }}
  - {name: ABEYANCE_NOTIFICATIONS, value: /run/config/notifications.yaml}
  {{- end }}
  {{- if ne .component "slack" }}
  - {name: ABEYANCE_APP, value: {{ $v.app | quote }}}
  {{- end }}
  {{- if $isWorker }}
  - {name: ABEYANCE_BUILD_ID, value: {{ $v.image.tag | quote }}}
  - {name: ABEYANCE_VERSIONING, value: {{ $v.worker.versioning | quote }}}
  - {name: ABEYANCE_SHUTDOWN_GRACE, value: {{ int64 $v.worker.shutdownGrace | quote }}}
  {{- end }}
  {{- if eq .component "worker" }}
  - {name: ABEYANCE_METRICS_ADDRESS, value: "0.0.0.0:9000"}
  {{- end }}
  {{- if has .component (list "api" "setup") }}
  - name: ABEYANCE_ALLOWED_HOSTS
    value: {{ concat (list (printf "%s-api" .root.Release.Name) (printf "%s-api.%s" .root.Release.Name .root.Release.Namespace) (printf "%s-api.%s.svc" .root.Release.Name .root.Release.Namespace) (printf "%s-api.%s.svc.cluster.local" .root.Release.Name .root.Release.Namespace)) $v.api.hosts | join "," | quote }}
  {{- end }}
  {{- if and $v.api.tokensSecret (ne .component "slack") }}
  # A worker looks in it whether who remembered a yes may still say it.
  - {name: ABEYANCE_TOKENS_FILE, value: /run/secrets/tokens/tokens.json}
  {{- end }}
  {{- range $name, $value := $v.settings }}
  - {name: {{ $name }}, value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}}
  {{- end }}
  {{- $secret := $v.secret.name }}
  {{- range concat $v.secret.keys (ternary $v.worker.secretKeys list $isWorker) }}
  - {name: {{ . }}, valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}}}}
  {{- end }}
  {{- if eq .component "slack" }}
  {{- range list "ABEYANCE_SLACK_BOT_TOKEN" (ternary "ABEYANCE_SLACK_APP_TOKEN" "ABEYANCE_SLACK_SIGNING_SECRET" $v.slack.socketMode) }}
  - {name: {{ . }}, valueFrom: {secretKeyRef: {name: {{ $v.slack.secret }}, key: {{ . }}}}}
  {{- end }}
  {{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if $v.storage.claim }}
  - {name: blobs, mountPath: /blobs}
  {{- end }}
  {{- if $v.notifications }}
  - {name: notifications, mountPath: /run/config, readOnly: true}
  {{- end }}
  {{- if $v.temporal.clientCertificate }}
  - {name: temporal, mountPath: /run/secrets/temporal, readOnly: true}
  {{- end }}
  {{- if and $v.api.tokensSecret (ne .component "slack") }}
  - {name: tokens, mountPath: /run/secrets/tokens, readOnly: true}
  {{- end }}
{{- end -}}
