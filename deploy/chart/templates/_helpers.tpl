{{- define "billhook.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "billhook.selector" -}}
app.kubernetes.io/name: billhook-controller
{{- end }}

{{- define "billhook.labels" -}}
{{ include "billhook.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "billhook.webhook.selector" -}}
app.kubernetes.io/name: billhook-webhook
{{- end }}

{{- define "billhook.webhook.labels" -}}
{{ include "billhook.webhook.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "billhook.webhook.annotations" -}}
{{- if .Values.webhook.certManager }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/billhook-webhook
{{- end }}
{{- end }}

{{- /* The settings that all webhooks share; of the path .path. */ -}}
{{- define "billhook.webhook.settings" -}}
clientConfig:
  {{- with .Values.webhook.caBundle }}
  caBundle: {{ . }}
  {{- end }}
  service:
    name: billhook-webhook
    namespace: {{ .Release.Namespace }}
    path: {{ .path }}
failurePolicy: Fail
matchPolicy: Equivalent
sideEffects: None
timeoutSeconds: 5
admissionReviewVersions: [v1]
{{- end }}
