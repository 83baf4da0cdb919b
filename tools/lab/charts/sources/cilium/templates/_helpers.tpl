{{- /* An image: a dict of image (its values), suffix of the repository, and version, its tag without one of its own. */ -}}
{{- define "cilium.image" -}}
{{- if .image.override -}}
{{ .image.override }}
{{- else -}}
{{ .image.repository }}{{ .suffix }}:{{ default .version .image.tag }}
{{- end -}}
{{- end -}}

{{- define "cilium.labels" -}}
app.kubernetes.io/part-of: cilium
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "cilium.apiEnv" -}}
{{- if .Values.k8sServiceHost }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .Values.k8sServiceHost | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .Values.k8sServicePort | toString | quote }}}
{{- end }}
{{- end -}}
