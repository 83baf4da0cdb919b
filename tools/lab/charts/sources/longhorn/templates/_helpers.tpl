{{- define "longhorn.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
{{- end -}}

{{- /* An image: a dict of root and image (its values). */ -}}
{{- define "longhorn.image" -}}
{{ coalesce .root.Values.global.imageRegistry .root.Values.privateRegistry.registryUrl .image.registry "docker.io" }}/{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}

{{- /* Where pods may go: a dict of root and of, the component's values. */ -}}
{{- define "longhorn.place" -}}
{{- with .of.priorityClass }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with default .root.Values.global.tolerations .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.global.nodeSelector .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
