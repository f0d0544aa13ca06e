{{/* Refuses values that are missing or contradict each other: all of them, one line each. */}}
{{- define "abeyance.checks" -}}
{{- $v := .Values -}}
{{- $faults := list -}}
{{- range $name, $value := dict "image.repository" $v.image.repository "image.tag" $v.image.tag "app" $v.app "temporal.address" $v.temporal.address "database.url" $v.database.url "secret.name" $v.secret.name "serviceAccountName" $v.serviceAccountName -}}
{{- if not $value -}}{{- $faults = append $faults (printf "%s is not set" $name) -}}{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" .Release.Name) -}}
{{- $faults = append $faults (printf "the release %s names a Service: begin with a letter, and use small letters, digits and - only" .Release.Name) -}}
{{- end -}}
{{- if eq $v.image.tag "latest" -}}
{{- $faults = append $faults "image.tag is latest, which moves: name the build, such as a commit" -}}
{{- end -}}
{{- if and $v.database.url (not (hasPrefix "postgresql://" $v.database.url)) -}}
{{- $faults = append $faults "database.url is not a postgresql://user@host/name: other pods do not see a file of SQLite" -}}
{{- end -}}
{{- if regexMatch "^[a-z]+://[^@?]*:[^@]*@|[?&]password=" $v.database.url -}}
{{- $faults = append $faults "database.url has a password: bring it as PGPASSWORD among secret.keys" -}}
{{- end -}}
{{- if and $v.storage.url $v.storage.claim -}}
{{- $faults = append $faults "storage.url and storage.claim are both set: use one" -}}
{{- end -}}
{{- if and $v.temporal.serverCa (not $v.temporal.clientCertificate) -}}
{{- $faults = append $faults "temporal.serverCa is a key of temporal.clientCertificate, which is not set" -}}
{{- end -}}
{{- if not (or $v.api.tokensSecret $v.settings.ABEYANCE_JWT_ISSUER $v.settings.ABEYANCE_OIDC_ISSUER) -}}
{{- $faults = append $faults "nobody could call the API: set api.tokensSecret, or ABEYANCE_JWT_ISSUER or ABEYANCE_OIDC_ISSUER among settings" -}}
{{- end -}}
{{- if and $v.settings.ABEYANCE_OIDC_ISSUER (not (has "ABEYANCE_SIGNIN_KEYS" $v.secret.keys)) -}}
{{- $faults = append $faults "people sign in at ABEYANCE_OIDC_ISSUER, and each API would seal sessions with a key of its own: add ABEYANCE_SIGNIN_KEYS to secret.keys" -}}
{{- end -}}
{{- $owned := include "abeyance.owned" $ | fromJson -}}
{{- $brought := concat $v.secret.keys $v.worker.secretKeys -}}
{{- $secrets := list "ABEYANCE_AUDIT_KEY" "ABEYANCE_ENCRYPTION_KEYS" "ABEYANCE_OIDC_CLIENT_SECRET" "ABEYANCE_SIGNIN_KEYS" "ABEYANCE_SLACK_APP_TOKEN" "ABEYANCE_SLACK_BOT_TOKEN" "ABEYANCE_SLACK_SIGNING_SECRET" "ABEYANCE_TOKEN" "PGPASSWORD" "TEMPORAL_API_KEY" -}}
{{- range $name, $value := $v.settings -}}
{{- if has $name $secrets -}}
{{- $faults = append $faults (printf "settings.%s is a secret: add it to secret.keys" $name) -}}
{{- else if has $name $brought -}}
{{- $faults = append $faults (printf "%s is among settings and among the keys of the Secret: use one" $name) -}}
{{- else if hasKey $owned $name -}}
{{- $faults = append $faults (printf "settings.%s is set by the value %s" $name (get $owned $name)) -}}
{{- end -}}
{{- end -}}
{{- range $name := $brought -}}
{{- if hasKey $owned $name -}}
{{- $faults = append $faults (printf "%s is among the keys of the Secret, and is set by the value %s" $name (get $owned $name)) -}}
{{- else if and $v.slack.enabled (hasPrefix "ABEYANCE_SLACK_" $name) -}}
{{- $faults = append $faults (printf "%s is a key of slack.secret, which only the process of Slack gets" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name := $v.worker.secretKeys -}}
{{- if has $name $v.secret.keys -}}
{{- $faults = append $faults (printf "%s is among secret.keys and worker.secretKeys: use one" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $v.worker.versioning "off") (regexMatch "[.:]" $v.taskQueue) -}}
{{- $faults = append $faults (printf "taskQueue %s names the worker deployment, which may have no . and no : in its name, or set worker.versioning to off" $v.taskQueue) -}}
{{- end -}}
{{- if $v.worker.autoscaling.enabled -}}
{{- if gt (int $v.worker.autoscaling.min) (int $v.worker.autoscaling.max) -}}
{{- $faults = append $faults "worker.autoscaling.min is more than worker.autoscaling.max" -}}
{{- end -}}
{{- if and (not $v.worker.autoscaling.authentication) (or $v.temporal.clientCertificate (has "TEMPORAL_API_KEY" $brought)) -}}
{{- $faults = append $faults "Temporal needs credentials, and KEDA has none: name a TriggerAuthentication in worker.autoscaling.authentication" -}}
{{- end -}}
{{- end -}}
{{- if $v.slack.enabled -}}
{{- if not $v.notifications -}}
{{- $faults = append $faults "slack.enabled needs rules: name their ConfigMap in notifications" -}}
{{- end -}}
{{- if not $v.slack.secret -}}
{{- $faults = append $faults "slack.enabled needs the tokens of the app: name their Secret in slack.secret" -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n%s" (join "\n" $faults)) -}}
{{- end -}}
{{- end -}}

{{/* The variables that this chart sets itself, and the values that they come from. */}}
{{- define "abeyance.owned" -}}
{{- dict
  "ABEYANCE_ALLOWED_HOSTS" "api.hosts"
  "ABEYANCE_APP" "app"
  "ABEYANCE_BUILD_ID" "image.tag"
  "ABEYANCE_DATABASE_URL" "database.url"
  "ABEYANCE_METRICS_ADDRESS" "(always 0.0.0.0:9000)"
  "ABEYANCE_NOTIFICATIONS" "notifications"
  "ABEYANCE_SHUTDOWN_GRACE" "worker.shutdownGrace"
  "ABEYANCE_STORAGE" "storage"
  "ABEYANCE_STORAGE_SHARED" "storage.claim"
  "ABEYANCE_TASK_QUEUE" "taskQueue"
  "ABEYANCE_TOKENS_FILE" "api.tokensSecret"
  "ABEYANCE_VERSIONING" "worker.versioning"
  "TEMPORAL_ADDRESS" "temporal.address"
  "TEMPORAL_NAMESPACE" "temporal.namespace"
  "TEMPORAL_TLS" "temporal.tls"
  "TEMPORAL_TLS_CLIENT_CERT_PATH" "temporal.clientCertificate"
  "TEMPORAL_TLS_CLIENT_KEY_PATH" "temporal.clientCertificate"
  "TEMPORAL_TLS_SERVER_CA_CERT_PATH" "temporal.serverCa"
| toJson -}}
{{- end -}}
