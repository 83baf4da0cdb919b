{{- define "nfs.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: "{{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}"
{{- with .Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A container: a dict of root, name and image, the name of its image's values. */ -}}
{{- define "nfs.container" -}}
{{- $image := index .root.Values.image .image -}}
- name: {{ .name }}
  image: "{{ if hasPrefix "/" $image.repository }}{{ .root.Values.image.baseRepo }}{{ end }}{{ $image.repository }}:{{ default (print "v" .root.Chart.AppVersion) $image.tag }}"
  imagePullPolicy: {{ $image.pullPolicy }}
{{- end -}}
