{{- /* What the pods are called in labels. */}}
{{- define "quorate.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- /* What the account, the Deployment and the rest are called: the release, with the name where that does not say it. */}}
{{- define "quorate.fullname" -}}
{{- $name := include "quorate.name" . }}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default ($both | trunc 52 | trimSuffix "-") }}
{{- end }}

{{- /*
A file of deploy/kubernetes as it is called here. What is Quorate's alone in a cluster keeps its name: the admission policies, the
definition of queues; and in its namespace the Lease and the ConfigMaps. Two schedulers of one cluster would bind the same pods.
*/}}
{{- define "quorate.file" -}}
{{- $own := include "quorate.fullname" .root }}
{{- $account := printf "system:serviceaccount:%s:%s" .root.Release.Namespace $own }}
{{- $label := printf "app.kubernetes.io/name: %s" (include "quorate.name" .root) }}
{{- $text := .text
  | replace "system:serviceaccount:quorate-system:quorate" $account
  | replace "quorate-system" .root.Release.Namespace
  | replace "app.kubernetes.io/name: quorate" $label }}
{{- regexReplaceAll "(?m)^( +name: )quorate(-read|-write|-exec)?$" $text (printf "${1}%s${2}" $own) }}
{{- end }}
