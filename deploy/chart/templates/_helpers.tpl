{{- define "billhook.selector" -}}
app.kubernetes.io/name: billhook-controller
{{- end }}

{{- define "billhook.labels" -}}
{{ include "billhook.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
