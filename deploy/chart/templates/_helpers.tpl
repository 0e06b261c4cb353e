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

{{- /* Any address, except those that give credentials to everyone on the network. */ -}}
{{- define "billhook.egress" -}}
# DNS servers may have link-local addresses.
- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
- to:
  # Some implementations do not count pods among the addresses below.
  - namespaceSelector: {}
  - ipBlock:
      cidr: 0.0.0.0/0
      except: [169.254.0.0/16, 100.100.100.200/32, 168.63.129.16/32, 192.0.0.192/32]
  - ipBlock:
      cidr: ::/0
      except: [fe80::/10, "fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128"]
{{- end }}
